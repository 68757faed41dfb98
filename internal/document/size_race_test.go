//go:build race

package document_test

// hostileSize is smaller where every memory access is watched: the race
// detector makes the large texts take minutes.
const hostileSize = 64 << 10
