// Package vp8 decodes key frames of VP8, which lossy WebP files are (RFC 6386): to the same samples as golang.org/x/image/vp8, in less
// time, and only the part of a frame that is wanted.
package vp8
