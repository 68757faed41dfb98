// Package usage defines usage records: how many units of each meter a key has used on a route in one hour, for billing
// (contract, plans, section 8), and their stored form. Package meter counts the requests, package closing makes records of
// what it has counted.
//
//	requests ──meter──► chunks, some a second ──after the hour, closing──► blocks of records ──35 days──► blocks of days
//
// Chunks of one hour add up. A record is written once and never changes: what is counted later makes another one of the same
// identity, with the next sequence.
package usage
