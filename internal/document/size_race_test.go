//go:build race

package document_test

// hostileSize is smaller with the race detector, under which large texts take minutes.
const hostileSize = 64 << 10
