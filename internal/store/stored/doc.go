// Package stored is the form of records in a store, as far as the engines share it: the encoding of
// values that no query looks into, and the numbers and terms by which queries find records. It has
// no SQL.
//
// Its output stays in databases. A changed form must still read what earlier versions wrote.
package stored
