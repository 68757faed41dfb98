//go:build !race

package document_test

// hostileSize is the largest body of a push (contract, section 2).
const hostileSize = 16 << 20
