package rows

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	parameter = regexp.MustCompile(`\$(\d+)`)
	list      = regexp.MustCompile(`= ANY \((\$\d+)\)`)
	limit     = regexp.MustCompile(`(LIMIT|OFFSET) (\$\d+)`)
	cast      = regexp.MustCompile(`::[a-z]+(\[\])?`)
	locked    = regexp.MustCompile(`\s+FOR (NO KEY )?UPDATE( OF \w+)?( SKIP LOCKED)?`)
	indexed   = regexp.MustCompile(` INDEXED BY \w+`)
	crossed   = regexp.MustCompile(`CROSS JOIN (\w+(?: \w+)? ON\b)`)
	queueNow  = regexp.MustCompile(`queue_now\((\$\d+)\)`)
	unnested  = regexp.MustCompile(`unnest\(([^()]*)\)\s+(WITH ORDINALITY\s+)?AS (\w+) \(([^()]*)\)`)
	rowid     = regexp.MustCompile(`\browid\b`)
	recordset = regexp.MustCompile(`json_to_recordset\((\$\d+)::json\) AS (\w+) \(([^()]*)\)`)
)

// ForSQLite returns a statement in the form for SQLite. A list that is an argument must be JSON.
//
// A limit is not a parameter alone: SQLite would plan with its value and prepare the statement again whenever one is
// bound, which costs more than reading a page.
func ForSQLite(statement string) string {
	s := strings.NewReplacer("= true", "= 1", "= false", "= 0", "LIMIT ALL", "LIMIT -1", ` COLLATE "C"`, "", "greatest(", "max(", "least(", "min(", "strpos(", "instr(").Replace(statement)
	s = recordset.ReplaceAllStringFunc(s, eachObject)
	s = cast.ReplaceAllString(locked.ReplaceAllString(s, ""), "")
	s = queueNow.ReplaceAllString(s, "$1")
	s = unnested.ReplaceAllStringFunc(s, oneRow)
	s = limit.ReplaceAllString(list.ReplaceAllString(s, "IN (SELECT value FROM json_each($1))"), "$1 $2+0")
	s = inRows(s)
	if inOrder(s) {
		return parameter.ReplaceAllString(s, "?")
	}
	return parameter.ReplaceAllString(s, "?$1")
}

// ForPostgreSQL returns a statement as PostgreSQL takes it.
func ForPostgreSQL(statement string) string {
	s := crossed.ReplaceAllString(indexed.ReplaceAllString(statement, ""), "JOIN $1")
	return rowid.ReplaceAllString(s, "ctid")
}

// oneRow returns a row of parameters in place of columns that are unnested.
func oneRow(columns string) string {
	m := unnested.FindStringSubmatch(columns)
	values, names := strings.Split(m[1], ","), strings.Split(m[4], ",")
	if m[2] != "" {
		values = append(values, "0")
	}
	for i := range values {
		values[i] = strings.TrimSpace(values[i]) + " AS " + strings.TrimSpace(names[i])
	}
	return "(SELECT " + strings.Join(values, ", ") + ") AS " + m[3]
}

// eachObject returns the rows of a parameter with a JSON array in the form for SQLite.
func eachObject(set string) string {
	m := recordset.FindStringSubmatch(set)
	columns := strings.Split(m[3], ",")
	for i, column := range columns {
		name, _, _ := strings.Cut(strings.TrimSpace(column), " ")
		columns[i] = "value ->> '" + name + "' AS " + name
	}
	return "(SELECT " + strings.Join(columns, ", ") + " FROM json_each(" + m[1] + ")) AS " + m[2]
}

// inOrder reports whether the statement has each parameter once, in the order of their numbers.
func inOrder(statement string) bool {
	for i, m := range parameter.FindAllStringSubmatch(statement, -1) {
		if m[1] != strconv.Itoa(i+1) {
			return false
		}
	}
	return true
}

// inRows returns the statement with IN (…) in place of = ANY (ARRAY(…)).
func inRows(statement string) string {
	const begin = "= ANY (ARRAY("
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(statement, begin)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		end := closing(rest)
		b.WriteString("IN (" + inRows(rest[:end]))
		statement = rest[end+1:] // without one of the two parentheses
	}
}

// closing returns the index in the text of the parenthesis that closes a parenthesis before the text.
func closing(text string) int {
	for i, depth := 0, 1; i < len(text); i++ {
		switch text[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(text) - 1
}
