// Package misuse is for tests that use each exported function of a package wrong once, and look at what that says.
package misuse
