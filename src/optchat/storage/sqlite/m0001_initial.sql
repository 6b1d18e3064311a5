-- The schema of optchat's store. Each index says which query it serves.
--
-- Keys start with the scope or the session, so that either can move to a file of its own. A tree is
-- named `g:<session>:<generation>` or `p:<scope>`. Times are milliseconds of the engine's clock;
-- `born` and `died` are commit sequence numbers: a snapshot at c sees born <= c and not died <= c.

create table counter (
  name text primary key,                 -- csn, epoch, index
  value integer not null
) strict, without rowid;
insert into counter values ('csn', 0), ('epoch', 0), ('index', 0), ('doc', 0);

create table meta (
  key text primary key,
  value text not null
) strict, without rowid;

create table project (
  project_id text primary key,
  host text not null,
  host_key text not null,
  directory text not null,
  unique (host, host_key)                -- the project that a host speaks of
) strict, without rowid;

create table scope (
  id integer primary key,                -- what its publications name it by, in this file only
  scope_id text not null unique,
  name text not null,
  policy_revision integer not null,
  retention_epoch integer not null,
  publications integer not null,         -- the next publication's number
  sessions integer not null
) strict;

create table session (
  session_id text primary key,
  host text not null,
  host_session text not null,
  scope_id text not null,
  project_id text not null,
  generation integer not null,
  title text not null,
  directory text not null,
  created_ms integer not null,
  updated_ms integer not null,
  parent_host_session text,
  archive_changes text not null,         -- a JSON array of commit numbers
  sharing text,
  disabled text,
  observed_ms integer not null,
  host_store text not null,              -- where the host keeps it, by a name of the adapter's
  host_mark text not null,               -- how far the host had changed it when it was read there
  unique (host, host_session)            -- the session that a host speaks of
) strict, without rowid;
-- The subagents of a session.
create index session_by_parent on session (host, parent_host_session)
  where parent_host_session is not null;

-- The number of a session in the scope that it is in, and in those where it has published.
create table member (
  scope_id text not null,
  number integer not null,
  session_id text not null references session (session_id) on delete cascade,
  primary key (scope_id, number),        -- refs such as s12:0:71, and the list of a scope
  unique (session_id, scope_id)          -- how a scope names a session
) strict, without rowid;
-- What a host should still have; what a forgotten project had.
create index session_by_project on session (project_id);

create table generation (
  id integer primary key autoincrement,  -- what its records name it by, in this file only
  session_id text not null,
  number integer not null,
  base_session_id text,
  base_generation integer,
  inherited integer not null,
  length integer not null,               -- the next record's seq
  adopted integer not null,              -- came over from a forgotten session
  unmade_from integer,                   -- own records from here on have no nodes yet
  unique (session_id, number)
) strict;
-- Whose history begins with this one's?
create index generation_by_base on generation (base_session_id, base_generation)
  where base_session_id is not null;

-- A payload lies in the packs from `pack` on, from byte `at` of the first one: a small one in a pack
-- with its neighbours, a large one in packs of its own, cut at BLOB_CHUNK_BYTES.
create table blob (
  id integer primary key,
  hash blob not null,                    -- sha256 of the payload
  size integer not null,
  pack integer not null,
  at integer not null
) strict;
-- The payload of a hash: four bytes of it leave about one to look at.
create index blob_by_hash on blob (substr(hash, 1, 4));

create table pack (
  id integer primary key,
  first_blob integer not null,           -- what may lie in it: blobs from here
  end_blob integer not null,             -- to before here
  size integer not null,                 -- before compression
  crc32 integer not null,                -- of `data`
  zstd integer not null,                 -- 0: stored as it is, because compression did not help
  data blob not null
) strict;

create table record (
  doc integer primary key,               -- of record_fts; counted, so never given again
  generation_id integer not null,
  seq integer not null,
  event_key any not null,                -- `codes.py` has the short forms of this and others
  turn_id text not null,
  message_id text not null,
  kind any not null,
  host_time_ms integer not null,         -- this and the next since those of its place
  sealed_ms integer not null,
  blob integer not null,                 -- its payload; no foreign key, which wants an index
  place integer not null,                -- of its generation
  tool text,
  pair any,
  status any,
  truncated text,
  attachments text,                      -- a JSON array; null: none
  unique (generation_id, seq)            -- refs, ranges of a history
) strict;

-- Where the records of a generation were observed.
create table place (
  generation_id integer not null,
  number integer not null,
  project_id text not null,
  worktree text,
  observed_commit text,
  host_time_ms integer not null,         -- the beginning of the first record's day
  sealed_ms integer not null,
  primary key (generation_id, number)
) strict, without rowid;

-- The words of records, and no text: what was indexed is made again from a payload
-- (`storage/searched.py`) when a record is taken out.
-- No column sizes: nothing is ranked by bm25, whose averages would speak of what is not visible.
create virtual table record_fts using fts5 (
  text,
  content = '',
  tokenize = "porter unicode61 remove_diacritics 2",
  detail = full,
  columnsize = 0
);
-- Bytes that a transaction gathers before they are written as a piece of the index, to be merged.
insert into record_fts (record_fts, rank) values ('hashsize', 8388608);
-- Fewer and larger merges: the commits of an import cost a fifth less.
insert into record_fts (record_fts, rank) values ('automerge', 16);
create virtual table record_places using fts5vocab (record_fts, instance);
create virtual table record_words using fts5vocab (record_fts, row);

create table message (
  session_id text not null,
  position integer not null,
  message_id text not null,
  digest any not null,                   -- bytes, if it is hexadecimal
  turn_id text not null,
  start_seq integer not null,
  end_seq_exclusive integer not null,
  primary key (session_id, position)
) strict, without rowid;

create table turn (
  turn_id text primary key,
  session_id text not null,
  generation integer not null,
  key text not null,
  start_seq integer not null,
  opened_ms integer not null,
  scope_id text,                         -- where it is published; null: nowhere
  end_seq_exclusive integer,
  outcome text,
  closed_ms integer,
  pin text,                              -- a JSON object
  fold_id text,
  news text not null,
  checkpoints text not null,             -- a JSON array
  unique (session_id, generation, key)   -- the turn that a message opened; the turns of a session
) strict, without rowid;
-- The turn that goes on, the last that was sent with memory, those that have checkpoints, and those
-- that one fold was sent with:
-- what each model call asks for, however long the session is.
create index turn_open on turn (session_id, generation) where outcome is null;
create index turn_pinned on turn (session_id, generation, start_seq, opened_ms, turn_id)
  where pin is not null;
create index turn_folded on turn (session_id, generation) where checkpoints <> '[]';
create index turn_by_fold on turn (session_id, fold_id) where fold_id is not null;

-- What nodes name their trees by, in this file only.
create table tree (
  id integer primary key,
  name text not null unique
) strict;

create table node (
  tree integer not null,
  count integer not null,
  start integer not null,
  revision integer not null,
  kind any not null,                     -- a number, as are well-known models and prompt versions
  label text not null,
  text text not null,
  input_hash any not null,
  model any not null,
  prompt_version any not null,
  born integer not null,
  died integer,
  evidence text not null,                -- which records a model had before it
  primary key (tree, count, start, revision)  -- count first: the leaves of a tree lie together
) strict, without rowid;
-- At most one live revision of a span; contiguous live leaves.
create unique index node_live on node (tree, count, start) where died is null;

-- The summaries, numbered for their index. Verbatim nodes are found by their records.
create table node_doc (
  doc integer primary key,
  tree integer not null,
  count integer not null,
  start integer not null,
  revision integer not null,
  born integer not null,
  died integer,
  unique (tree, count, start, revision)  -- removal
) strict;

create virtual table node_fts using fts5 (
  text,
  content = '',
  tokenize = "porter unicode61 remove_diacritics 2",
  detail = full,
  columnsize = 0
);
insert into node_fts (node_fts, rank) values ('secure-delete', 1);
create virtual table node_places using fts5vocab (node_fts, instance);

create table tree_view (
  tree text not null,
  revision integer not null,
  born integer not null,
  shrinking integer not null,
  entries text not null,                 -- JSON: [start, count, revision, bytes, tokens], …
  primary key (tree, revision)
) strict, without rowid;

create table publication (
  scope integer not null,
  seq integer not null,
  session_id text not null,
  generation integer not null,
  turn_id text not null,
  start_seq integer not null,
  end_seq_exclusive integer not null,
  outcome text not null,
  opened_ms integer not null,
  completed_ms integer not null,
  published_ms integer not null,
  title text not null,
  born integer not null,
  died integer,
  primary key (scope, seq),
  -- No turn is published twice; the publications of a turn.
  unique (turn_id, scope, session_id, generation)
) strict, without rowid;
-- The publications of a session, newest first, and the sessions of a scope.
create index publication_by_session on publication (scope, session_id, seq);

-- The records that a publication is made from, by the generation that owns them: one range, as a
-- rule. Its cover is `cover(start_seq, end_seq_exclusive)`, each part in the range that it lies in.
create table published (
  scope integer not null,
  publication integer not null,
  generation_id integer not null,
  start integer not null,
  end_exclusive integer not null,
  primary key (scope, publication, start),
  foreign key (scope, publication) references publication (scope, seq) on delete cascade
) strict, without rowid;
-- Is a record published? The published part of one generation.
create index published_by_record
  on published (generation_id, scope, start, end_exclusive, publication);

create table fold (
  fold_id text primary key,
  session_id text not null,
  generation integer not null,
  pin text not null,                     -- a JSON object
  boundary integer not null,
  first_turn_key text not null,
  publication_end integer not null,
  shared_text text not null,
  own_text text not null,
  window text not null,
  cause text not null,
  coverage text not null,
  made_ms integer not null
) strict, without rowid;
-- What a removal has to look through.
create index fold_by_session on fold (session_id, generation);

create table shared_base (
  scope_id text primary key,
  csn integer not null,
  publication_end integer not null,
  policy_revision integer not null,
  retention_epoch integer not null,
  text text not null
) strict, without rowid;

create table job (
  ordinal integer primary key,           -- the order of arrival; identifies nothing
  job_id text not null unique,
  kind text not null,
  target text not null,
  session_id text,
  scope_id text not null,
  queue text not null,                   -- the session's id, else the scope's
  input_hash text not null,
  state text not null,
  token integer not null,
  attempts integer not null,
  lease_until_ms integer not null,
  not_before_ms integer not null,
  worker text not null,
  error text not null,
  unique (kind, target, input_hash)      -- a replay enqueues nothing; the newest job of a target
) strict;
-- The next job of each queue to claim, and when it is due.
create index job_claimable on job (queue, kind desc, ordinal, state, not_before_ms, lease_until_ms)
  where state in ('ready', 'leased');
create index job_due on job (iif(state = 'ready', not_before_ms, lease_until_ms))
  where state in ('ready', 'leased');
-- What may go along with a job that was claimed.
create index job_open on job (queue, ordinal) where state in ('ready', 'waiting', 'leased');
-- Counts by state, of a session and of all.
create index job_by_session on job (session_id, state);
-- Lists by state, without those that are done.
create index job_listed on job (state, ordinal) where state <> 'done';

-- When a queue was served last, in claims; the smallest is next.
create table job_queue (
  queue text primary key,
  served integer not null
) strict, without rowid;
-- The largest so far.
create index job_queue_by_served on job_queue (served);

create table job_wait (
  ordinal integer not null references job (ordinal) on delete cascade,
  tree text not null,
  start integer not null,
  count integer not null,
  primary key (ordinal, tree, start, count)
) strict, without rowid;
-- Which jobs wait for a node that just became durable?
create index job_wait_by_node on job_wait (tree, start, count);

create table model_call (
  call_id text primary key,
  at_ms integer not null,
  day text not null,
  purpose text not null,
  model text not null,
  scope_id text not null,
  session_id text,
  turn_id text,
  idle integer not null,
  outcome text not null,                 -- sent, until the answer is there
  input_tokens integer not null,
  cached_tokens integer not null,
  output_tokens integer not null,
  estimated integer not null,
  micros integer,
  duration_ms integer not null
) strict, without rowid;
-- The caps of a day, of an hour and of a turn.
create index model_call_by_time on model_call (at_ms);
create index model_call_by_turn on model_call (turn_id) where turn_id is not null;

create table finding (
  model text not null,
  prompt_version text not null,
  finding text not null,
  times integer not null,
  primary key (model, prompt_version, finding)
) strict, without rowid;

-- The pieces of an oversized payload: they go with it.
create table chunk (
  blob integer not null references blob (id) on delete cascade,
  plan text not null,
  level integer not null,
  position integer not null,
  start integer not null,
  end_exclusive integer not null,
  read integer not null,
  text text not null,
  primary key (blob, plan, level, position)
) strict, without rowid;

-- What was forgotten must not come back with a late event: sha256 of a host's id, and nothing else.
create table tombstone (
  key text primary key
) strict, without rowid;

-- What was removed and when, without a word of it.
create table removal (
  ordinal integer primary key,
  at_ms integer not null,
  what text not null,
  counts text not null,                  -- a JSON object
  places text not null                   -- JSON: refs that still quote it
) strict;
