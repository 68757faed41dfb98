package canary

import "time"

// CountRow is what a node has counted of a canary until a time.
type CountRow struct {
	CanaryID string
	Number   int // of the step: gateway.CanaryShare.Step
	At       time.Time
	Data     []byte // of a Tally
}

// MaxStored bounds the bytes of the stored rows that have not been added up yet.
const MaxStored = 256 << 20

// Listed names a stored CountRow.
type Listed struct {
	Seq      int64 // in the order of their transactions
	CanaryID string
	Number   int
	Size     int // of the data
}

// StoredStep is what was counted of the present step of a canary, in rows that were removed with it.
type StoredStep struct {
	CanaryID string
	Step     int    // Canary.Step
	First    int    // Progress.Number of the step
	Data     []byte // of a Step
}
