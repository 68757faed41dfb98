// Package ratelimit holds the rates that users write, and the arithmetic that
// decides by them (specification, Limits; contract, 4.3).
//
//	Config, Rate ──Compile──► Params ─┐
//	                                  ├─► Limit ─┐
//	Bucket, or Buckets for each key ──┘            ├──Decide──► Status ──► fields
//	Daily, or Dailies for each key ─────► Limit ─┘
//	  ▲ ranges
//	Reserver ──► DailyStore
//
// A Bucket is one word that compare-and-swap changes; a Daily is another. Decide reads all that
// apply, then charges all or none. Nothing on that path locks, allocates or waits.
//
// What it promises, whatever runs beside it: in every window w at most
// capacity + w×rate requests pass a bucket; no more than the cap pass a Daily in a UTC day,
// through crashes, restarts and steps of the wall clock; no change of a limit, sweep or
// publication refills a bucket.
package ratelimit
