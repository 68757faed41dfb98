package sqlite

// aboveAll sorts after every identifier; identifiers are ASCII.
const aboveAll = "\x7f"

// below returns the exclusive upper bound for the identifiers of the page after the given one.
func below(after string) string {
	if after == "" {
		return aboveAll
	}
	return after
}

// rowLimit returns n, or 0 if it is negative: SQLite takes a negative limit for no limit.
//
// Queries write LIMIT ?+0. For a parameter alone, SQLite plans with its value and prepares
// the statement again whenever one is bound, which costs more than reading a page.
func rowLimit(n int) int { return max(n, 0) }
