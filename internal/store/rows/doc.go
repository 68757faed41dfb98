// Package rows keeps the records of the store in rows: once for both engines, SQLite and PostgreSQL, over the
// transactions that an engine gives it (Engine, Queries, Statements). What an engine does in a way of its own stays in its
// package: how transactions begin and end, the change log, the search index, daily counts, and how leases of deliveries
// end.
//
// # Stored form
//
// How values are encoded that no query looks into, and by which numbers and terms queries find the others, is what
// databases hold: a change must still read what earlier versions wrote.
//
// # Statements
//
// All statements are written in one dialect, and an engine rewrites each when it first uses it (ForSQLite,
// ForPostgreSQL). The dialect is PostgreSQL's, with these differences:
//
//   - A table may be followed by INDEXED BY, which PostgreSQL does not get: its planner chooses.
//   - CROSS JOIN may have ON. SQLite then reads the tables in the order of the text, PostgreSQL as it likes.
//   - A table without a short key is addressed by rowid, always as rowid = ANY (ARRAY(SELECT …)).
//   - A condition on a boolean column is written as = true or = false, as the partial indexes of SQLite need it.
//   - OFFSET without a limit is written as LIMIT ALL OFFSET.
//   - A table in FROM that is a query has a name, and parts of a UNION that have an order are such tables.
//   - A list is one parameter, and always written as = ANY ($1). Its type follows from the column. One of bytes is not (inLists).
//   - A number that PostgreSQL does not know the type of has a cast, as in $1::bigint. SQLite does not get it.
//   - queue_now is the time of the queue of deliveries. SQLite, which has one node, takes the time that it is given.
//   - unnest is that of columns which QueueEach gets, each a parameter with a cast. SQLite runs the statement for each row,
//     so of an ordinality it knows only the order.
//   - json_to_recordset is that of a parameter with a JSON array of objects, as in json_to_recordset($1::json) AS c (n bigint).
//     One statement with it takes the place of one for each row, which takes SQLite ten times as long.
//   - Literal texts do not contain any of this.
package rows
