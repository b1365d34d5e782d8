package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/option"
)

// usersTimeout bounds a change of the users.
const usersTimeout = 5 * time.Second

// userRules are the routes of `nsqctl user`, `nsqctl acl` and `nsqctl audit`.
var userRules = []Rule{
	{Method: "POST", Path: "/v1/user/create", Right: access.AdministerCluster, Audited: true, first: true},
	{Method: "POST", Path: "/v1/user/rotate", Right: access.AdministerCluster, Audited: true},
	{Method: "POST", Path: "/v1/user/delete", Right: access.AdministerCluster, Audited: true},
	{Method: "POST", Path: "/v1/user/quota", Right: access.AdministerCluster, Audited: true},
	{Method: "GET", Path: "/v1/user/list", Right: access.AdministerCluster},
	{Method: "POST", Path: "/v1/acl/grant", Right: access.AdministerCluster, Audited: true},
	{Method: "POST", Path: "/v1/acl/revoke", Right: access.AdministerCluster, Audited: true},
	{Method: "GET", Path: "/v1/audit", Right: access.AdministerCluster},
}

// usersOnly adds the endpoints of users and rights.
func (a *endpoints) usersOnly(get, post func(string, endpoint)) {
	if a.b.Users == nil || a.b.Guard == nil {
		return
	}
	post("/v1/user/create", a.inTime(a.createUser))
	post("/v1/user/rotate", a.inTime(a.rotateUser))
	post("/v1/user/delete", a.inTime(a.deleteUser))
	post("/v1/user/quota", a.inTime(a.setQuota))
	get("/v1/user/list", a.listUsers)
	post("/v1/acl/grant", a.inTime(a.changeRights(change{a.b.Users.GrantTopic, a.b.Users.GrantCluster})))
	post("/v1/acl/revoke", a.inTime(a.changeRights(change{a.b.Users.RevokeTopic, a.b.Users.RevokeCluster})))
	get("/v1/audit", a.audit)
}

// inTime bounds an endpoint, and gives the errors of the users their answers.
func (a *endpoints) inTime(e endpoint) endpoint {
	return func(r *http.Request) (any, error) {
		ctx, cancel := context.WithTimeout(r.Context(), usersTimeout)
		defer cancel()
		reply, err := e(r.WithContext(ctx))
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
			err = &failure{status: http.StatusServiceUnavailable, message: err.Error(), retryAfter: true}
		case errors.Is(err, access.ErrUnknown), errors.Is(err, access.ErrNotSeen):
			err = fail(http.StatusGatewayTimeout, err.Error())
		}
		return reply, err
	}
}

// NewToken is the answer of /v1/user/create and /v1/user/rotate. The token is told once.
type NewToken struct {
	Name  string `json:"name"`
	Token string `json:"token,omitempty"`
}

// createUser: POST /v1/user/create?name=&admin=&certificate=.
func (a *endpoints) createUser(r *http.Request) (any, error) {
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	n := access.NewUser{Name: values.Get("name"), Admin: flag(values, "admin", false), Certificate: flag(values, "certificate", false)}
	if s := identityOf(r); !a.administered() && (s == nil || !s.LoggedIn()) && !a.mayBegin(r) {
		return nil, a.needsFirst()
	}
	token, err := a.b.Users.Create(r.Context(), n)
	return NewToken{Name: n.Name, Token: token}, err
}

func (a *endpoints) administered() bool {
	p := a.b.Users.Policy()
	return p != nil && p.Administered()
}

// mayBegin reports whether the request may make the first administrator without having any right: by the secret for that.
func (a *endpoints) mayBegin(r *http.Request) bool { return a.b.Users.Begins(bearer(r)) }

// needsFirst refuses to make the first administrator without the secret, and says where that is.
func (a *endpoints) needsFirst() error {
	return &failure{status: http.StatusForbidden, message: "FIRST_ADMINISTRATOR_NEEDS_SECRET", file: a.b.Users.FirstFile()}
}

// rotateUser: POST /v1/user/rotate?name=.
func (a *endpoints) rotateUser(r *http.Request) (any, error) {
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	token, err := a.b.Users.Rotate(r.Context(), values.Get("name"))
	return NewToken{Name: values.Get("name"), Token: token}, err
}

// deleteUser: POST /v1/user/delete?name=.
func (a *endpoints) deleteUser(r *http.Request) (any, error) {
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	return nil, a.b.Users.Delete(r.Context(), values.Get("name"))
}

// maxQuota bounds the numbers of a quota: 0 is no limit.
const maxQuota = 1 << 30

// setQuota: POST /v1/user/quota?name= and topics, partitions, channels, put_rate,
// put_bytes_rate. A missing number stays, 0 is no limit.
func (a *endpoints) setQuota(r *http.Request) (any, error) {
	values, err := query(r)
	if err != nil {
		return nil, err
	}
	var c access.QuotaChange
	args := arguments{Values: values}
	args.number("topics", &c.Topics)
	args.number("partitions", &c.Partitions)
	args.number("channels", &c.Channels)
	args.rate("put_rate", option.MessageRate, &c.PutRate)
	args.rate("put_bytes_rate", option.ByteRate, &c.PutBytesRate)
	switch {
	case args.err != nil:
		return nil, args.err
	case c == (access.QuotaChange{}):
		return nil, fmt.Errorf("%w: name topics, partitions, channels, put_rate, put_bytes_rate, or more of them", api.ErrInvalid)
	}
	return nil, a.b.Users.SetQuota(r.Context(), values.Get("name"), c)
}

// number reads a number that is 0 or more.
func (a *arguments) number(name string, to **int) {
	text := a.Get(name)
	if text == "" {
		return
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxQuota {
		a.fail("%s must be a number, 0 (no limit) to %d", name, maxQuota)
		return
	}
	*to = &n
}

// UserView is one user of /v1/user/list.
type UserView struct {
	Name    string       `json:"name"`
	Login   string       `json:"login"` // token, certificate or none
	Cluster string       `json:"cluster,omitempty"`
	Topics  []GrantView  `json:"topics"`
	Quota   access.Quota `json:"quota"`
	Used    api.Usage    `json:"used"` // of the quota
}

// GrantView is the rights of a user on the topics of a pattern.
type GrantView struct {
	Topic  string `json:"topic"`
	Rights string `json:"rights"`
}

// listUsers: GET /v1/user/list. No hash is told.
func (a *endpoints) listUsers(*http.Request) (any, error) {
	users, err := a.b.Users.Users()
	if err != nil {
		return nil, err
	}
	views := []UserView{}
	for _, u := range users {
		v := UserView{Name: u.Name, Login: "none", Topics: []GrantView{}, Quota: u.EffectiveQuota()}
		if a.b.Directory != nil {
			v.Used = a.b.Directory.Usage(u.Name)
		}
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
			v.Topics = append(v.Topics, GrantView{string(g.Topic), g.Rights.String()})
		}
		views = append(views, v)
	}
	return usersReply{views}, nil
}

// change is what /v1/acl/grant or /v1/acl/revoke does.
type change struct {
	topic   func(ctx context.Context, name string, topic access.Pattern, rights access.Right) error
	cluster func(ctx context.Context, name string, rights access.Right) error
}

// changeRights: POST /v1/acl/{grant,revoke}?user= with topic=PATTERN&rights=publish,consume,
// or with cluster=observe.
func (a *endpoints) changeRights(by change) endpoint {
	return func(r *http.Request) (any, error) {
		values, err := query(r)
		if err != nil {
			return nil, err
		}
		return nil, by.apply(r.Context(), values)
	}
}

func (c change) apply(ctx context.Context, values url.Values) error {
	name := values.Get("user")
	if values.Has("cluster") == values.Has("topic") {
		return fail(http.StatusBadRequest, "EITHER_TOPIC_OR_CLUSTER")
	}
	if values.Has("cluster") {
		rights, err := access.ParseClusterRights(values.Get("cluster"))
		if err != nil {
			return err
		}
		return c.cluster(ctx, name, rights)
	}
	rights, err := access.ParseTopicRights(values.Get("rights"))
	if err != nil {
		return err
	}
	return c.topic(ctx, name, access.Pattern(values.Get("topic")), rights)
}

// AuditView is the answer of /v1/audit.
type AuditView struct {
	Entries []guard.Entry `json:"entries"`
}

// audit: GET /v1/audit, the last actions on this broker, oldest first.
func (a *endpoints) audit(*http.Request) (any, error) {
	return AuditView{Entries: a.b.Guard.Audit.Entries()}, nil
}
