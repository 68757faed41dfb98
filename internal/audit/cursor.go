package audit

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/fault"
)

// cursor is the position in a list after which the next page begins. A list has the
// records of the open end, newest first, then the records of the blocks, the last block first, each
// from its end.
//
// Records of the open end may be sealed before the next page is read. Therefore the position of
// such a record is its key: from the open end, and from the blocks sealed since the first page, the
// next page has only records with a lower key. This holds until the list reaches the blocks that
// were sealed before the first page. No two records of an account have the same time, Seq and
// request.
type cursor struct {
	open bool // the last record was in the open end; block and index are unused

	block int64 // the block of the last record
	index int   // the index of the last record in the block

	bounded bool  // from block bound on, only records before key follow
	bound   int64 // the first block that was not sealed when the first page was read
	key     key
}

// String returns the cursor as text: "o", or the block's number and the index, and then the
// bound.
func (p *cursor) String() string {
	s := "o"
	if !p.open {
		s = strconv.FormatInt(p.block, 10) + "." + strconv.Itoa(p.index)
	}
	if p.bounded {
		s += fmt.Sprintf("/%d/%d/%d/%s", p.bound, p.key.time, p.key.seq, p.key.request)
	}
	return s
}

// readCursor parses the text of a cursor. Its errors are of package fault.
func readCursor(s string) (*cursor, error) {
	bad := fault.Invalid("cursor", "is not a cursor of the audit log: use next_cursor of the previous page")
	parts := strings.SplitN(s, "/", 5)
	p := &cursor{open: parts[0] == "o", bounded: len(parts) == 5}
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
