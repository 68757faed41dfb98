package rows

import (
	"strconv"
	"strings"

	"github.com/keygate/keygate/internal/control"
)

// listQuery builds the query of one list. Every value is a parameter, so that there are few different statements.
type listQuery struct {
	from       string // the index that has the order of the list; "" for the one that the engine chooses
	conditions []string
	args       []any
}

// where adds a condition that ends with a value.
func (l *listQuery) where(condition string, value any) {
	l.args = append(l.args, value)
	l.conditions = append(l.conditions, condition+l.last())
}

// last returns the parameter of the last value.
func (l *listQuery) last() string { return "$" + strconv.Itoa(len(l.args)) }

// contains adds the condition that one of the columns contains the text, ignoring the case of ASCII letters.
func (l *listQuery) contains(text string, columns ...string) {
	l.args = append(l.args, LowerASCII(text))
	either := make([]string, len(columns))
	for i, column := range columns {
		either[i] = `strpos(lower(` + column + `), ` + l.last() + `) > 0`
	}
	l.conditions = append(l.conditions, "("+strings.Join(either, " OR ")+")")
}

// newest returns the rest of the query for up to limit records, newest first, and its arguments.
func (l *listQuery) newest(limit int) (string, []any) {
	l.args = append(l.args, Limit(limit))
	return l.from + `WHERE ` + strings.Join(l.conditions, " AND ") + ` ORDER BY id DESC LIMIT ` + l.last(), l.args
}

// byName returns the rest of the query of a list, newest first, and its arguments. The list has the records of an account whose name
// is the given one, and one of whose columns contains the text; "" stands for any. Names are unique in the account, so only a list
// of any name reads the index.
func byName(index, accountID, name, text string, p control.Page, columns ...string) (string, []any) {
	l := listQuery{from: `INDEXED BY ` + index + ` `}
	l.where(`account_id = `, accountID)
	l.where(`id < `, Below(p.After))
	if name != "" {
		l.from = ""
		l.where(`name = `, name)
	}
	if text != "" {
		l.contains(text, columns...)
	}
	return l.newest(p.Limit)
}
