// Package rebuild knows whether the job goes on with the ranks that are left when others are lost, and has the sentence of those
// packages that cannot.
package rebuild
