// Package httpapi answers HTTP: nsqd's API, nsqlookupd's API, and the cluster's
// own views, on one port or on two.
//
// It does not listen (internal/server does), stores nothing, and knows the
// cluster only through internal/edge.
//
// # Where nsqd and nsqlookupd disagree on one path
//
//	path                        NSQD handler               Lookup handler
//	/ping /info                 nsqd's answer              nsqlookupd's answer
//	/topic/create               bad name: INVALID_TOPIC    bad name: INVALID_ARG_TOPIC
//	/channel/create             unknown topic: 404         creates the topic too
//	/topic/delete               deletes the topic          200, deletes nothing
//	/channel/delete             deletes the channel        200 or 404, deletes nothing
//
// Tools post a deletion to every nsqlookupd and then to every nsqd: the second
// post deletes. An nsqlookupd holds no messages, so a deletion sent to one must
// never cost any.
//
// # Invariants
//
//  1. A put is answered 200 only after the Publisher reported it committed, 503
//     if nothing is stored, 504 if it is not known.
//  2. Arguments come from the query string only, the first value wins.
//  3. Every answer of the API, errors included, carries X-NSQ-Content-Type;
//     clients read a different format without it.
package httpapi
