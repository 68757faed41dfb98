package document

import (
	"fmt"
	"unsafe"
)

// Budget is how much memory reading a document may take, as a multiple of its size (contract,
// section 5). A document below 1.6 MiB may take MinBudget bytes, because YAML in which every word
// is a value takes more than the multiple, and only the sum over the documents that are read at
// once matters.
const (
	Budget    = 20
	MinBudget = 32 << 20
)

// textCopies is how often a text itself is in memory at most, besides the nodes: as it was sent, as
// a string, and in parts as the strings of nodes.
const textCopies = 3

// The bytes that a node takes, and the bytes that it takes in addition to compare its name with others.
const (
	nodeBytes = int(unsafe.Sizeof(Node{}))
	nameBytes = 40
)

// memory is an estimate of the memory that reading a text takes, made before its values are built.
type memory struct {
	text    string
	most    int
	bytes   int
	highest int // of memory that is in use only for a time
}

func newMemory(text string) *memory {
	return &memory{text: text, most: max(Budget*len(text), MinBudget), bytes: textCopies * len(text)}
}

// add adds n bytes that stay in memory.
func (m *memory) add(n int) { m.bytes += n }

// peak takes note that n bytes more are in memory at one time.
func (m *memory) peak(n int) { m.highest = max(m.highest, n) }

func (m *memory) isExceeded() bool { return m.bytes+m.highest > m.most }

func (m *memory) message() string {
	return fmt.Sprintf("the document has too many values for its size of %d bytes: reading it would take more than %d times as much memory; JSON takes less than YAML, and several gateways can share the paths", len(m.text), Budget)
}

// exceeded returns the error for a text that exceeds the budget at offset i.
func (m *memory) exceeded(i int) error {
	return positionOf(m.text, i).Invalid("", "%s", m.message())
}
