"""What is about the machine: environment, signals, devices, files, processes."""
