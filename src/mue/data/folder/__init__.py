"""Images and masks of several raters in a folder: nnU-Net's layout, or by patterns."""
