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
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/admission"
	"github.com/lockstepmq/lockstep/internal/ident"
)

var (
	argDrainReplicas = boolArg("replicas", "also move the replicas")

	// brokerRoutes are the operations on brokers, and the view of the cluster.
	brokerRoutes = []Route{
		get("/v1/cluster", access.Observe, func(a *endpoints, _ *request) (any, error) { return a.b.Directory.Cluster(), nil },
			"Brokers, topics and partitions of the cluster, with their leaders and replicas.").replies(api.ClusterView{}).local(),
		get("/v1/cluster/limits", access.Observe, func(a *endpoints, _ *request) (any, error) { return a.b.Directory.Limits(), nil },
			"The limits of the cluster on topics, partitions and channels, and their use.").replies(api.LimitsView{}),
		post("/v1/cluster/balance", access.AdministerCluster, do(readBalance),
			"Spread replicas and leaderships over the brokers."),
		post("/v1/broker/decommission", access.AdministerCluster, do(readDecommission),
			"Move all replicas of a broker to others.",
			argNode, boolArg("cancel", "cancel a decommission in progress")),
		post("/v1/broker/drain", access.AdministerCluster, do(readDrain),
			"Take the leaderships from a broker, before its maintenance.",
			argNode, argDrainReplicas, boolArg("cancel", "end a drain, finished or in progress")),
	}

	// planRoutes show a change before it is made: GET at the paths whose POST makes it, with the same arguments.
	planRoutes = []Route{
		get("/v1/topic/move", access.Observe, plan(readMove),
			"The plan of a move; nothing is changed.", argsMove...).replies(api.Plan{}),
		get("/v1/cluster/balance", access.Observe, plan(readBalance),
			"The plan of a balance; nothing is changed.").replies(api.Plan{}),
		get("/v1/broker/decommission", access.Observe, plan(readDecommission), "The plan of a decommission; nothing is changed.",
			argNode).replies(api.Plan{}),
		get("/v1/broker/drain", access.Observe, plan(readDrain), "The plan of a drain; nothing is changed.",
			argNode, argDrainReplicas).replies(api.Plan{}),
	}

	invitationRoutes = []Route{
		get("/v1/cluster/invite", access.AdministerCluster, (*endpoints).invitations, "The brokers that may join now.").
			replies(InvitationsView{}).local(),
		post("/v1/cluster/invite", access.AdministerCluster, (*endpoints).invite,
			"Let a broker of this name join the running cluster with embedded etcd, for a time.",
			argNode, durationArg("for", "how long (1h), at most 168h"),
			boolArg("withdraw", "end the invitation")).replies(Invitation{}),
	}
)

func readBalance(*request) api.Operation { return api.Balance{} }

func readDecommission(q *request) api.Operation {
	return api.Decommission{Node: ident.Node(q.text("node")), Cancel: q.boolean("cancel")}
}

func readDrain(q *request) api.Operation {
	return api.Drain{Node: ident.Node(q.text("node")), Replicas: q.boolean("replicas"), Cancel: q.boolean("cancel")}
}

const defaultInvitation = time.Hour

// Invitation is the answer of POST /v1/cluster/invite.
type Invitation struct {
	Node  string    `json:"node"`
	Until time.Time `json:"until,omitzero"` // missing: it was withdrawn
}

// InvitationsView is the answer of GET /v1/cluster/invite.
type InvitationsView struct {
	Invitations []Invitation `json:"invitations"`
}

func (a *endpoints) invitations(*request) (any, error) {
	reply := InvitationsView{Invitations: []Invitation{}}
	for node, until := range a.b.Admission.Open() {
		reply.Invitations = append(reply.Invitations, Invitation{node, until})
	}
	slices.SortFunc(reply.Invitations, func(a, b Invitation) int { return strings.Compare(a.Node, b.Node) })
	return reply, nil
}

func (a *endpoints) invite(q *request) (reply any, err error) {
	v, length := Invitation{Node: q.text("node")}, defaultInvitation
	if text := q.text("for"); text != "" {
		if length, err = time.ParseDuration(text); err != nil {
			return nil, fmt.Errorf("%w: for must be a duration such as 1h", outcome.ErrInvalid)
		}
	}
	ctx, cancel := context.WithTimeout(q.Context(), usersTimeout)
	defer cancel()
	if q.flag("withdraw", false) {
		err = a.b.Admission.Withdraw(ctx, v.Node)
	} else {
		v.Until, err = a.b.Admission.Invite(ctx, v.Node, length)
	}
	switch {
	case errors.Is(err, admission.ErrInvalid):
		return nil, fmt.Errorf("%w: %w", outcome.ErrInvalid, err)
	case errors.Is(err, admission.ErrUnknown):
		return nil, fail(http.StatusGatewayTimeout, err.Error())
	case err != nil: // the metadata does not answer, or has not answered yet
		return nil, unavailable(err.Error())
	}
	return v, nil
}
