package tcp

import "github.com/lockstepmq/lockstep/internal/auth/access"

// Rule says which right a command takes. FIN, REQ, TOUCH, RDY and CLS take none: they work on a subscription that was
// allowed.
type Rule struct {
	Command string
	Right   access.Right
}

// Rules are the rights of all commands, for docs/reference/rights.md. A test holds them against what the connection
// understands, and against what it refuses.
func Rules() []Rule {
	return []Rule{
		{"IDENTIFY", access.Open}, {"AUTH", access.Open}, {"NOP", access.Open},
		{"PUB", access.Publish}, {"MPUB", access.Publish}, {"DPUB", access.Publish},
		{"PUB_EXT", access.Publish}, {"MPUB_EXT", access.Publish}, {"PUB_TRACE", access.Publish}, {"MPUB_TRACE", access.Publish},
		{"SUB", access.Consume}, {"SUB_ORDERED", access.Consume}, {"SUB_ADVANCED", access.Consume},
		{"RDY", access.Open}, {"FIN", access.Open}, {"REQ", access.Open}, {"TOUCH", access.Open}, {"CLS", access.Open},
	}
}
