// Package helm has the tests of the Helm chart in keygate. They render it with the template functions that
// Helm has, and check the objects against the schemas of Kubernetes in testdata/schemas, which the program
// in schemas writes. docs/adr/0022-helm-chart.md says why.
package helm
