// Package orthogonal makes a matrix nearly orthogonal by Newton and Schulz's iteration, which is what Muon does to momentum.
package orthogonal
