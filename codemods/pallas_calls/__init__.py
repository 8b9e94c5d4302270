"""``pl.pallas_call`` for Mosaic GPU as ``plgpu.kernel``, and a kernel's place in its grid."""
