//go:build !linux && !darwin

package main

func limits() []limit { return nil }
