//go:build !race

package reliability

const racing = false
