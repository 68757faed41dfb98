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
//
// In a statement a limit is ?+0: where it is a parameter alone, SQLite plans with
// its value, and so prepares the statement again each time one is bound, which
// costs more than reading a page.
func rowLimit(n int) int { return max(n, 0) }
