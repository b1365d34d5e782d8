// Package httpapi implements HTTP: nsqd's API, nsqlookupd's API, and the cluster's own views, on one port or on two.
//
// It does not listen (internal/frontend/listen does) and stores nothing. internal/api is its only way to the cluster.
//
// # Paths on which nsqd and nsqlookupd differ
//
//	path                        NSQD handler               Lookup handler
//	/ping /info                 nsqd's answer              nsqlookupd's answer
//	/topic/create               bad name: INVALID_TOPIC    bad name: INVALID_ARG_TOPIC
//	/channel/create             unknown topic: 404         creates the topic too
//	/topic/delete               deletes the topic          200, deletes nothing
//	/channel/delete             deletes the channel        200 or 404, deletes nothing
//
// Tools post a deletion to every nsqlookupd and then to every nsqd: the second post deletes. An nsqlookupd holds no
// messages, so a deletion posted to the Lookup handler never removes one.
//
// # Invariants
//
//  1. A put is answered 200 only after the Publisher has reported it committed, 503 if nothing is stored, 504 if its
//     outcome is unknown.
//  2. Arguments come from the query string only; the first value of a name counts.
//  3. Every answer of the API, errors included, has the header X-NSQ-Content-Type; without it clients expect another
//     format.
package httpapi
