// What conv.cu, conv_last.cu and pictures.cu share.

// Conv is the sizes of a convolution: in and out are channels of a group.
struct Conv {
  i64 n, in, h, w, out, groups, kh, kw, sh, sw, ph, pw, dh, dw, oh, ow;
};

// A product's kind, threads of a block, and a row or column that no picture has.
enum { FORWARD, GRAD_X, GRAD_W, LANES = 256, OUTSIDE = -(1 << 29) };
