package cost

// Reader finds the figures of one response while its body passes. It is for one goroutine at a time, starts none, and
// holds at most MaxReaderBytes and what gzip needs.
type Reader struct {
	program *Program
}

// Write reads a piece of the body as it was received, still encoded. Pieces may be cut anywhere. It keeps nothing of b.
func (r *Reader) Write(b []byte) {}

// Figure returns what was read for the rule i, which has FromJSON. It ends the reading: Write must not be called after it.
func (r *Reader) Figure(i int) Figure { return Figure{} }

// Result returns what the request costs by the rule i, which has FromJSON. It ends the reading as Figure does.
func (r *Reader) Result(i int, o Outcome) (units int64, reason Reason) {
	return r.program.rules[i].Settle(o, r.Figure(i))
}

// AppendRead appends what was read for the rule i, as in "prompt_tokens 1,000 × 1, completion_tokens 51 × 4", in at most
// 256 bytes. It has names of fields and values of prices of the rule, and numbers, and nothing else of the body.
func (r *Reader) AppendRead(b []byte, i int) []byte { return b }

// Close ends the reading and gives the reader back to its program. r must not be used after it.
func (r *Reader) Close() {}
