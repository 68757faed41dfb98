// Package stored is the form of records in a store, as far as the engines share it: how values are
// encoded that no query looks into, and by which numbers and terms queries find the others. It has
// no SQL.
//
// What it writes stays in databases. A change must still read what earlier versions wrote.
package stored
