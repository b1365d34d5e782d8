package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/option"
)

const usersTimeout = 5 * time.Second

var (
	argsQuota = []Argument{
		argUser, quotaArg("topics", "topics that the user creates"), quotaArg("partitions", "their partitions"),
		quotaArg("channels", "channels that the user creates"), numberArg("put_rate", "messages a second and broker"),
		numberArg("put_bytes_rate", "bytes a second and broker"),
	}
	argsGrant = []Argument{
		textArg("user", "the user").must(),
		textArg("topic", "a topic, or a pattern: * is any text, ? one character"),
		textArg("rights", "with topic: publish, consume, administer, separated by commas"),
		textArg("cluster", "instead of topic: observe or administer"),
	}
)

// maxQuota bounds the numbers of a quota: 0 means no limit.
const maxQuota = 1 << 30

func quotaArg(name, help string) Argument {
	return numberArg(name, help).between(0, maxQuota).orElse(fmt.Sprintf("must be a number, 0 (no limit) to %d", maxQuota))
}

// userRoutes serve `nsqctl user`, `nsqctl acl` and `nsqctl audit`.
var userRoutes = []Route{
	firstToo(post("/v1/user/create", access.AdministerCluster, inTime((*endpoints).createUser),
		"Create a user. The first administrator sends the secret in the file first-admin.token of the broker's data path as "+
			"the bearer token. The answer has the token, once.",
		argUser, boolArg("admin", "the user may do everything"),
		boolArg("certificate", "the user logs in with a client certificate of this name")).replies(NewToken{})),
	post("/v1/user/rotate", access.AdministerCluster, inTime(func(a *endpoints, q *request) (any, error) {
		token, err := a.b.Users.Rotate(q.Context(), q.text("name"))
		return NewToken{q.text("name"), token}, err
	}), "Give a user a new token.", argUser).replies(NewToken{}),
	post("/v1/user/delete", access.AdministerCluster, inTime(func(a *endpoints, q *request) (any, error) {
		return nil, a.b.Users.Delete(q.Context(), q.text("name"))
	}), "Delete a user.", argUser),
	post("/v1/user/quota", access.AdministerCluster, inTime(reading(readQuota, (*endpoints).setQuota)),
		"Change the quota of a user. A missing number stays, 0 means no limit. By default a user that does not administer the "+
			"cluster may create 1,000 topics, 10,000 partitions and 10,000 channels.",
		argsQuota...),
	get("/v1/user/list", access.AdministerCluster, (*endpoints).listUsers, "All users, with their rights, quotas and usage.").
		replies(usersReply{}),
	post("/v1/acl/grant", access.AdministerCluster, inTime(func(a *endpoints, q *request) (any, error) {
		return nil, changeRights(q, a.b.Users.Grant)
	}), "Give a user rights.", argsGrant...).fails("EITHER_TOPIC_OR_CLUSTER"),
	post("/v1/acl/revoke", access.AdministerCluster, inTime(func(a *endpoints, q *request) (any, error) {
		return nil, changeRights(q, a.b.Users.Revoke)
	}), "Take rights from a user.", argsGrant...).fails("EITHER_TOPIC_OR_CLUSTER"),
	get("/v1/audit", access.AdministerCluster, func(a *endpoints, _ *request) (any, error) {
		return AuditView{a.b.Guard.Audit.Entries()}, nil
	}, "The last audited actions at this broker, oldest first.").replies(AuditView{}).local(),
}

func firstToo(r Route) Route { r.first = true; return r }

// inTime bounds the time of an endpoint, and replaces the errors of package access.
func inTime(e endpoint) endpoint {
	return func(a *endpoints, q *request) (any, error) {
		ctx, cancel := context.WithTimeout(q.Context(), usersTimeout)
		defer cancel()
		q.Request = q.WithContext(ctx)
		reply, err := e(a, q)
		switch {
		case errors.Is(err, access.ErrInvalid):
			err = fail(http.StatusBadRequest, err.Error())
		case errors.Is(err, access.ErrNoUser):
			err = fail(http.StatusNotFound, "USER_NOT_FOUND")
		case errors.Is(err, access.ErrExists):
			err = fail(http.StatusConflict, "USER_EXISTS")
		case errors.Is(err, access.ErrLastAdministrator), errors.Is(err, access.ErrConflict):
			err = fail(http.StatusConflict, err.Error())
		case errors.Is(err, access.ErrNotReady):
			err = unavailable(err.Error())
		case errors.Is(err, access.ErrUnknown), errors.Is(err, access.ErrNotSeen):
			err = fail(http.StatusGatewayTimeout, err.Error())
		}
		return reply, err
	}
}

// NewToken is the answer of /v1/user/create and /v1/user/rotate. The token is shown only once.
type NewToken struct {
	Name  string `json:"name"`
	Token string `json:"token,omitempty"`
}

func (a *endpoints) createUser(q *request) (any, error) {
	n := access.NewUser{Name: q.text("name"), Admin: q.flag("admin", false), Certificate: q.flag("certificate", false)}
	if s := identityOf(q.Request); !a.administered() && (s == nil || !s.LoggedIn()) && !a.mayBegin(q.Request) {
		return nil, a.needsFirst()
	}
	token, err := a.b.Users.Create(q.Context(), n)
	return NewToken{n.Name, token}, err
}

func (a *endpoints) administered() bool {
	p := a.b.Users.Policy()
	return p != nil && p.Administered()
}

// mayBegin reports whether the request has the secret with which the first administrator is created without a right.
func (a *endpoints) mayBegin(r *http.Request) bool { return a.b.Users.Begins(bearer(r)) }

// needsFirst refuses to create the first administrator without the secret, and names the file that contains it.
func (a *endpoints) needsFirst() error {
	return &failure{status: http.StatusForbidden, message: "FIRST_ADMINISTRATOR_NEEDS_SECRET", file: a.b.Users.FirstFile()}
}

func readQuota(q *request) access.QuotaChange {
	c := access.QuotaChange{
		Topics: q.quota("topics"), Partitions: q.quota("partitions"), Channels: q.quota("channels"),
		PutRate: q.rate("put_rate", option.MessageRate), PutBytesRate: q.rate("put_bytes_rate", option.ByteRate),
	}
	if c == (access.QuotaChange{}) {
		q.fail("name topics, partitions, channels, put_rate, put_bytes_rate, or more of them")
	}
	return c
}

func (a *endpoints) setQuota(q *request, c access.QuotaChange) (any, error) {
	return nil, a.b.Users.SetQuota(q.Context(), q.text("name"), c)
}

// quota reads a number of a quota; nil: the argument is missing.
func (q *request) quota(name string) *int {
	if q.text(name) == "" {
		return nil
	}
	n := q.number(name, 0)
	return &n
}

// UserView is one user of /v1/user/list.
type UserView struct {
	Name    string       `json:"name"`
	Login   string       `json:"login"` // token, certificate or none
	Cluster string       `json:"cluster,omitempty"`
	Topics  []grantView  `json:"topics"`
	Quota   access.Quota `json:"quota"`
	Used    api.Usage    `json:"used"` // of the quota
}

type grantView struct {
	Topic  string `json:"topic"`
	Rights string `json:"rights"`
}

type usersReply struct {
	Users []UserView `json:"users"`
}

// listUsers never shows a hash.
func (a *endpoints) listUsers(*request) (any, error) {
	users, err := a.b.Users.Users()
	if err != nil {
		return nil, err
	}
	views := []UserView{}
	for _, u := range users {
		v := UserView{Name: u.Name, Login: "none", Topics: []grantView{}, Quota: u.EffectiveQuota(), Used: a.b.Directory.Usage(u.Name)}
		switch {
		case u.Certificate:
			v.Login = "certificate"
		case u.TokenID != "":
			v.Login = "token"
		}
		if u.Cluster != 0 {
			v.Cluster = u.Cluster.String()
		}
		for _, g := range u.Grants {
			v.Topics = append(v.Topics, grantView{string(g.Topic), g.Rights.String()})
		}
		views = append(views, v)
	}
	return usersReply{views}, nil
}

// changeRights grants or revokes the rights that a request names.
func changeRights(q *request, change func(ctx context.Context, user string, topic access.Pattern, rights access.Right) error) error {
	if q.has("cluster") == q.has("topic") {
		return fail(http.StatusBadRequest, "EITHER_TOPIC_OR_CLUSTER")
	}
	topic, text, parse := access.Pattern(q.topic()), q.text("rights"), access.ParseTopicRights
	if q.has("cluster") {
		topic, text, parse = "", q.text("cluster"), access.ParseClusterRights
	}
	rights, err := parse(text)
	if err != nil {
		return err
	}
	return change(q.Context(), q.text("user"), topic, rights)
}

// AuditView is the answer of /v1/audit.
type AuditView struct {
	Entries []guard.Entry `json:"entries"`
}
