//go:build !race

package document_test

// hostileSize is the maximum size of a pushed document (contract, section 2).
const hostileSize = 16 << 20
