// Package gradnorm computes the norm of all gradients, also over ranks, and the factor that clips them.
package gradnorm
