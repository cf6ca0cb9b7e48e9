"""Settings with which a small network fits digits in a second or two."""

SETTINGS = {"batch_size": 64, "optimiser": "sgd(lr=0.03, momentum=0.9)", "weight_decay": 1e-3, "device": "cpu"}
QUICK = {"evaluate_every": 1000, "checkpoint_every": 1000, "clean_pass": False}  # evaluate and write a checkpoint only at the end
