//go:build !linux && !darwin

package main

import "errors"

func signalSelf(string) error { return errors.New("killing and stopping ranks needs Linux or macOS") }
