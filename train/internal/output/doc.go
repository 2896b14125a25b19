// Package output writes what a training leaves at its end, a timeline and a picture, and finds out at its beginning whether
// that can be written.
package output
