"""``python -m noisewise`` is the command ``noisewise``."""

from noisewise.cli import app

if __name__ == "__main__":
    app(prog_name="noisewise")
