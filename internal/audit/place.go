package audit

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// place is where a list goes on. The list is of the open end, newest first, then
// of the blocks, the last first, each from its end.
//
// What stands in the open end may be sealed before the next page is read. Its
// place is therefore told by what the record is: of the open end, and of blocks
// that were sealed since, only what is older follows. That holds for as long as
// the list has not come to the blocks that were sealed before. No two records of
// an account are of one time, Seq and request.
type place struct {
	open bool // the last record stood in the open end; block and index say nothing

	block int64 // the last record was the one with this index of this block
	index int

	bounded bool  // of blocks from bound on, only what is before key follows
	bound   int64 // the first block that was not sealed when the open end was read
	key     key
}

// String writes the place: "o" or the block's number and index, and the bound.
func (p *place) String() string {
	s := "o"
	if !p.open {
		s = strconv.FormatInt(p.block, 10) + "." + strconv.Itoa(p.index)
	}
	if p.bounded {
		s += fmt.Sprintf("/%d/%d/%d/%s", p.bound, p.key.time, p.key.seq, p.key.request)
	}
	return s
}

func readPlace(s string) (*place, error) {
	bad := fault.Invalid("cursor", "is none of the audit log's: take next_cursor of the page before")
	parts := strings.SplitN(s, "/", 5)
	p := &place{open: parts[0] == "o", bounded: len(parts) == 5}
	if len(parts) != 1 && len(parts) != 5 || p.open && !p.bounded {
		return nil, bad
	}
	var errs [5]error
	if !p.open {
		block, index, _ := strings.Cut(parts[0], ".")
		p.block, errs[0] = strconv.ParseInt(block, 10, 64)
		p.index, errs[1] = strconv.Atoi(index)
	}
	if p.bounded {
		p.bound, errs[2] = strconv.ParseInt(parts[1], 10, 64)
		p.key.time, errs[3] = strconv.ParseInt(parts[2], 10, 64)
		p.key.seq, errs[4] = strconv.ParseInt(parts[3], 10, 64)
		p.key.request = parts[4]
	}
	for _, err := range errs {
		if err != nil {
			return nil, bad
		}
	}
	return p, nil
}
