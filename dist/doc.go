// Package dist runs the ranks of a training job and lets them communicate.
package dist
