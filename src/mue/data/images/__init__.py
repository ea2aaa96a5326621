"""One reader of image files: pictures, TIFF, NIfTI, DICOM, npy."""
