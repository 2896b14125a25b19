//go:build !linux

package main

func sharedMemory() sharedReport {
	return sharedReport{Problem: "only Linux has sealed memory files"}
}
