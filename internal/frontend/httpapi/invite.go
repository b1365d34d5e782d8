package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/admission"
)

// defaultInvitation is how long an invitation lasts if the request names no time.
const defaultInvitation = time.Hour

// Invitation is the answer of /v1/cluster/invite.
type Invitation struct {
	Node  string    `json:"node"`
	Until time.Time `json:"until,omitzero"` // missing: it was withdrawn
}

// InvitationsView is the answer of GET /v1/cluster/invite.
type InvitationsView struct {
	Invitations []Invitation `json:"invitations"`
}

// invitations: GET /v1/cluster/invite.
func (a *endpoints) invitations(*http.Request) (any, error) {
	reply := InvitationsView{Invitations: []Invitation{}}
	for node, until := range a.b.Admission.Open() {
		reply.Invitations = append(reply.Invitations, Invitation{node, until})
	}
	slices.SortFunc(reply.Invitations, func(a, b Invitation) int { return strings.Compare(a.Node, b.Node) })
	return reply, nil
}

// invite: POST /v1/cluster/invite?node=[&for=1h][&withdraw=true].
func (a *endpoints) invite(r *http.Request) (any, error) {
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	reply, length := Invitation{Node: values.Get("node")}, defaultInvitation
	if text := values.Get("for"); text != "" {
		if length, err = time.ParseDuration(text); err != nil {
			return nil, fmt.Errorf("%w: for must be a duration such as 1h", api.ErrInvalid)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), usersTimeout)
	defer cancel()
	if flag(values, "withdraw", false) {
		err = a.b.Admission.Withdraw(ctx, reply.Node)
	} else {
		reply.Until, err = a.b.Admission.Invite(ctx, reply.Node, length)
	}
	switch {
	case errors.Is(err, admission.ErrInvalid):
		return nil, fmt.Errorf("%w: %w", api.ErrInvalid, err)
	case errors.Is(err, admission.ErrUnknown):
		return nil, fail(http.StatusGatewayTimeout, err.Error())
	case err != nil: // the metadata has not answered yet, or does not
		return nil, &failure{status: http.StatusServiceUnavailable, message: err.Error(), retryAfter: true}
	}
	return reply, nil
}
