//go:build !race

package nccl_test

const race = false
