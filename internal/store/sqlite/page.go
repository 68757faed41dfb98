package sqlite

// above every identifier: identifiers are ASCII.
const aboveAll = "\x7f"

// below returns the identifier that a page's records are below.
func below(after string) string {
	if after == "" {
		return aboveAll
	}
	return after
}

// rowLimit keeps SQLite from taking a negative limit for none.
func rowLimit(n int) int { return max(n, 0) }
