//go:build !linux && !darwin

package doctor

func limits() []Limit { return nil }
