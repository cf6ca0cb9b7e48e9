"""Noisewise inside other libraries. Each file is for one of them, and imports it; nothing else in the package imports these files."""
