// Made by `make generate` from schemas/v1; change the methods' declarations instead.
import type { Ask } from "./call.js";

export interface Added {
  index: number;
  id: number;
  kb: string;
  title: string;
  chunk_count: number;
}

/** `kbs` and `scopes` are null where all are open; `notes_folder` is where its notes lie. */
export interface Agent {
  slug: string;
  description: string;
  kbs: string[] | null;
  notes_folder: string;
  scopes: string[] | null;
  quotas: Quotas;
  instructions: string;
  revision: number;
  created_at: string;
  updated_at: string;
}

/** `healthy`: nothing failed; warnings do not count. */
export interface AgentCheckData {
  slug: string;
  healthy: boolean;
  findings: Finding[];
}

export interface AgentCheckParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** agent, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
}

export interface AgentCreateData {
  slug: string;
  description: string;
  kbs: string[] | null;
  notes_folder: string;
  scopes: string[] | null;
  quotas: Quotas;
  instructions: string;
  revision: number;
  created_at: string;
  updated_at: string;
}

export interface AgentCreateParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** agent, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
  /** what it is for */
  description?: string;
  /** knowledge bases that it sees; all if never given */
  kbs?: string[] | null;
  /** folder of its notes; STORE/notes/SLUG otherwise */
  notes_folder?: string | null;
  /** what it may do; all if never given */
  scopes?: string[] | null;
  quotas?: QuotasParams | null;
  /** how it is to answer, in its own words */
  instructions?: string | null;
}

export interface AgentDeleteData {
  slug: string;
  notes: number;
  notes_folder: string;
  files_kept: boolean;
}

export interface AgentDeleteParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** agent, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
}

/** `kbs` and `scopes` are null where all are open; `notes_folder` is where its notes lie. */
export interface AgentGetData {
  slug: string;
  description: string;
  kbs: string[] | null;
  notes_folder: string;
  scopes: string[] | null;
  quotas: Quotas;
  instructions: string;
  revision: number;
  created_at: string;
  updated_at: string;
}

export interface AgentGetParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** agent, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
}

export interface AgentInvokeData {
  session_id: number;
  message_id: number;
  status: "failed" | "finished" | "interrupted" | "refused" | "stopped" | (string & {});
  text: string;
  references: Reference[];
  see_also: Reference[];
  usage: Usage | null;
}

export interface AgentInvokeParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** agent, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
  /** the question, in plain words */
  question: string;
  /** session, by id */
  session_id?: number | null;
  /** how much of each passage is returned: ids only, a snippet, or its text */
  references?: "full" | "indexes" | "snippets";
  /** most tokens of passages, about */
  budget_tokens?: number;
}

export type AgentListData = Agent[];

export interface AgentListParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
}

/** Counts of an agent; a count is null for a caller that may not see the counted things. `entries`: those that it has stored and that are not deleted; `kbs`: those that exist and it sees. `misnamed_files`, `files_in_folders`: Markdown in its notes folder that is no note, because of its name or because it lies in a sub-folder; null also if the folder can't be read or its sub-folders hold too much to count. */
export interface AgentStatusData {
  slug: string;
  notes: number | null;
  entries: number | null;
  quotas: Quota[];
  kbs: string[];
  notes_folder: string;
  misnamed_files: number | null;
  files_in_folders: number | null;
}

export interface AgentStatusParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** agent, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
}

export interface AgentUpdateData {
  slug: string;
  description: string;
  kbs: string[] | null;
  notes_folder: string;
  scopes: string[] | null;
  quotas: Quotas;
  instructions: string;
  revision: number;
  created_at: string;
  updated_at: string;
}

export interface AgentUpdateParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** agent, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
  /** what it is for */
  description?: string | null;
  /** knowledge bases that it sees; all if never given */
  kbs?: string[] | null;
  /** folder of its notes; STORE/notes/SLUG otherwise */
  notes_folder?: string | null;
  /** what it may do; all if never given */
  scopes?: string[] | null;
  quotas?: QuotasParams | null;
  /** how it is to answer, in its own words */
  instructions?: string | null;
  /** what is to be as if never given: all, the default, no limit */
  clear?: ("kbs" | "knowledge_stored" | "notes_folder" | "notes_stored" | "scopes")[];
  /** fail if it has changed */
  expected_revision?: number | null;
}

/** A source as it was when an entry or a note was derived from it; see events.entry.Anchor. `document`: its id in the same file, where that holds it. */
export interface Anchor {
  /** document, by id */
  document?: number | null;
  revision?: number | null;
  path?: string | null;
  start_line?: number | null;
  end_line?: number | null;
  commit?: string | null;
  sha256?: string;
}

/** A change of the answer: a missing member is unchanged, a present one is replaced, and `delta` is appended to the text. `status` ends the answer. */
export interface AnswerEvent {
  type: "answer";
  request_id: number | string;
  index: number;
  cursor: string;
  message_id: number;
  delta?: string;
  text?: string;
  references?: Reference[];
  status?: "failed" | "finished" | "interrupted" | "refused" | "stopped" | (string & {});
}

/** The part of each channel in the score; null if the channel takes no part. `rerank`: the judgement of a hit that the cross-encoder has read; with fusion rerank it is the whole score. */
export interface Breakdown {
  fts: number | null;
  vector: number | null;
  rerank?: number;
}

/** One method in short. `params`: name → type, choice and bounds; `errors` by exit code. `undone_by`: the methods that take a write back, the closest first; empty if nothing does. */
export interface Brief {
  name: string;
  summary: string;
  kind: "destructive" | "read" | "write" | (string & {});
  required?: string[];
  when_to_use: string;
  usage: string;
  params: Record<string, string>;
  examples: Typed[];
  errors: Record<string, string[]>;
  undone_by?: string[];
}

export interface CancelParams {
  id: number | string;
}

/** Features of this version; in `init`, `max_line_bytes` and `max_in_flight` are as chosen. */
export interface Capabilities {
  batch: boolean;
  cancel: boolean;
  streams: boolean;
  dry_run: boolean;
  confirm: boolean;
  client_token: boolean;
  modes: string[];
  fusion: string[];
  max_line_bytes: number;
  max_in_flight: number;
}

export interface ChainHead {
  seq: number;
  hash: string;
}

/** A document that was written; `unread` only where its file was not read as a whole. */
export interface Changed {
  id: number;
  path: string;
  action: "added" | "moved" | "updated" | (string & {});
  /** parts of the source that are not in the text: how many, by kind */
  unread?: Record<string, number>;
}

export interface ChatData {
  session_id: number;
  message_id: number;
  status: "failed" | "finished" | "interrupted" | "refused" | "stopped" | (string & {});
  text: string;
  references: Reference[];
  see_also: Reference[];
  usage: Usage | null;
}

export interface ChatParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** the question, in plain words */
  question: string;
  /** knowledge base to answer from, or several; all if left out */
  kb?: string | string[] | null;
  /** how much of each passage is returned: ids only, a snippet, or its text */
  references?: "full" | "indexes" | "snippets";
  /** most tokens of passages, about */
  budget_tokens?: number;
}

export interface ChatsAddData {
  kb: string;
  added: number;
  updated: number;
  moved: number;
  unchanged: number;
  removed: number;
  gone: number;
  empty: number;
  failed: number;
  failed_before: number;
  unsupported: number;
  chunks: number;
  documents: Changed[];
  failures: FileFailure[];
  unsupported_paths: string[];
  unsupported_kinds?: Record<string, number>;
  skipped: Record<string, number>;
  skipped_links: LinkSkipped[];
  /** parts of the source that are not in the text: how many, by kind */
  unread: Record<string, number>;
  left_out_tags?: Record<string, string[]>;
  notes?: string[];
  purged_files?: string[];
}

export interface ChatsAddParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** whose session logs; all if left out */
  clients?: ("claude-code" | "codex" | "gemini-cli" | "opencode" | "pi")[];
  /** only sessions that ran in this folder or below it */
  project?: string | null;
  /** knowledge base to put it in */
  kb?: string;
  /** at most 16 tags, made kebab-case */
  tags?: string[];
  /** flat object of strings, numbers, booleans */
  metadata?: Record<string, string | number | boolean | null>;
}

export interface ChatsExportData {
  path: string;
  conversations: number;
  size_bytes: number;
}

export interface ChatsExportParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** the new file */
  path: string;
  /** knowledge base, or several; all if left out */
  kb?: string | string[] | null;
}

export interface Chunk {
  text: string;
  page?: number | null;
  section?: string | null;
  overlap?: number;
  joint?: string | null;
  marks?: Mark[];
}

export interface ChunkDeleteData {
  deleted: number;
  documents: number[];
}

export interface ChunkDeleteParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** chunks, by id */
  ids: number[];
}

/** A chunk with its neighbours in the same document, in order. */
export interface ChunkGetData {
  chunk: ChunkView;
  before: ChunkView[];
  after: ChunkView[];
  title: string;
  total_chunks: number;
}

export interface ChunkGetParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** chunk, by id */
  id: number;
  /** how many neighbours on this side */
  before?: number;
  /** how many neighbours on this side */
  after?: number;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
}

export type ChunkListData = ChunkView[];

export interface ChunkListParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** document, by id */
  document_id: number;
  /** the text of each chunk */
  text?: boolean;
}

/** An even sample of the `total` chunks with a vector, and the place of the query. */
export interface ChunkMapData {
  total: number;
  kbs: string[];
  points: MapPoint[];
  query: MapPlace | null;
}

export interface ChunkMapParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** knowledge base, or several; all if left out */
  kb?: string | string[] | null;
  /** a text to place, too */
  query?: string | null;
  /** most chunks, an even sample */
  limit?: number;
}

/** A chunk as it is shown: `chunk_index` counts from 0 within its document. `start_line` and `end_line` where the source is text. */
export interface ChunkView {
  id: number;
  document_id: number;
  chunk_index: number;
  text: string;
  page: number | null;
  section: string | null;
  page_end: number | null;
  start_line: number | null;
  end_line: number | null;
}

export interface ClusterInitData {
  stream: string | null;
  seq: number;
  hash: string;
}

export interface ClusterInitParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** http://HOST:PORT of each, which tells whether it syncs */
  monitor?: string[];
  /** take the loss of acknowledged writes in a power cut into account */
  unsafe_sync?: boolean;
  /** a .creds file of NATS, or a file with one line NAME:PASSWORD; mode 0600 */
  credentials?: string | null;
  /** nats://HOST:PORT of each */
  servers: string[];
  /** what the nodes call the store that they share */
  stream: string;
  /** how many servers keep each record; 3 where three are named, else 1 */
  replicas?: number | null;
}

export interface ClusterJoinData {
  stream: string | null;
  seq: number;
  hash: string;
}

export interface ClusterJoinParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** http://HOST:PORT of each, which tells whether it syncs */
  monitor?: string[];
  /** take the loss of acknowledged writes in a power cut into account */
  unsafe_sync?: boolean;
  /** a .creds file of NATS, or a file with one line NAME:PASSWORD; mode 0600 */
  credentials?: string | null;
  /** nats://HOST:PORT of each */
  servers: string[];
  /** what the nodes call the store that they share */
  stream: string;
}

export interface ClusterLeaveData {
  stream: string | null;
  seq: number;
  hash: string;
}

export interface ClusterLeaveParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
}

export interface ClusterReseedData {
  stream: string;
  seq: number;
  hash: string;
  published: number;
  sources: number;
}

export interface ClusterReseedParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** how many servers keep each record of a stream that is made anew; as many as before, or 3 where there is none and three are named */
  replicas?: number | null;
}

/** `seq` and `hash`: of the last record that this node has; `stream_seq`: that it knows of. `connected`: it can write; else `problem` says why not. `workers`: that embed for the nodes; `dead_jobs`: what they have failed at lately, `dead_why` the last time. */
export interface ClusterStatusData {
  shared: boolean;
  stream: string | null;
  servers: string[];
  seq: number;
  hash: string;
  stream_seq: number;
  connected: boolean;
  problem: string | null;
  workers: number;
  dead_jobs: number;
  dead_why: string | null;
}

export interface ClusterStatusParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
}

/** `type` in DuckDB's words. */
export interface Column {
  name: string;
  type: string;
}

/** Another hit gives another value for what this one says. `older`: the other hit is newer; false where neither is. `says`: all of it in words. */
export interface Conflict {
  document_id: number;
  value: string;
  other_value: string;
  older: boolean;
  says: string;
}

export type DescribeData = Index | Brief | Surface | Full;

export interface DescribeParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** one method; all if left out */
  method?: string | null;
  /** with flags, schemas, scopes and all errors */
  full?: boolean;
}

export type DocCreateData = Document | ManyAdded;

export interface DocCreateParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** title; required for one */
  title?: string;
  /** its text; required for one */
  text?: string;
  /** knowledge base to put it in */
  kb?: string;
  /** at most 16 tags, made kebab-case */
  tags?: string[];
  /** how the text is to be read */
  type?: "code" | "html" | "markdown" | "text";
  /** your own name for it, unique in the kb */
  source_id?: string | null;
  /** flat object of strings, numbers, booleans */
  metadata?: Record<string, string | number | boolean | null>;
  /** where it came from, if not from the caller: user, agent, tool, web, import. Only a person can say user */
  origin?: "agent" | "import" | "tool" | "user" | "web";
  /** many at once, each with the members of one */
  documents?: NewDocument[];
}

export interface DocDeleteData {
  deleted: number;
  ids: number[];
}

export interface DocDeleteParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** documents, by id */
  ids?: number[] | null;
  where?: Selection | null;
}

/** `content` is base64; with `path` the bytes went to that file instead. */
export interface DocDownloadData {
  id: number;
  name: string;
  sha256: string;
  size_bytes: number;
  offset: number;
  length: number;
  content: string | null;
  path: string | null;
}

export interface DocDownloadParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** document, by id */
  id: number;
  /** first byte */
  offset?: number;
  /** most bytes */
  length?: number;
  /** write the whole to this */
  path?: string | null;
}

export interface DocFetchData {
  id: number;
  kb: string;
  title: string;
  type: "archive" | "book" | "code" | "conversation" | "doc" | "docx" | "html" | "knowledge" | "mail" | "markdown" | "note" | "notebook" | "odt" | "pdf" | "picture" | "rtf" | "sheet" | "slides" | "table" | "text" | (string & {});
  source: Source;
  tags: string[];
  metadata: Record<string, string | number | boolean | null>;
  revision: number;
  chunk_count: number;
  size_bytes: number;
  sha256: string;
  index_status: "failed" | "pending" | "ready" | (string & {});
  created_at: string;
  updated_at: string;
  pages: number | null;
  /** parts of the source that are not in the text: how many, by kind */
  unread?: Record<string, number>;
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  modified_at?: string;
}

export interface DocFetchParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** http or https address */
  url: string;
  /** knowledge base to put it in */
  kb?: string;
  /** at most 16 tags, made kebab-case */
  tags?: string[];
  /** flat object of strings, numbers, booleans */
  metadata?: Record<string, string | number | boolean | null>;
  /** larger pages are refused */
  max_bytes?: number;
}

/** A document; `text`, from `offset` on: of PDF and DOCX what was read in them, of every other type the source's own characters. */
export interface DocGetData {
  id: number;
  kb: string;
  title: string;
  type: "archive" | "book" | "code" | "conversation" | "doc" | "docx" | "html" | "knowledge" | "mail" | "markdown" | "note" | "notebook" | "odt" | "pdf" | "picture" | "rtf" | "sheet" | "slides" | "table" | "text" | (string & {});
  source: Source;
  tags: string[];
  metadata: Record<string, string | number | boolean | null>;
  revision: number;
  chunk_count: number;
  size_bytes: number;
  sha256: string;
  index_status: "failed" | "pending" | "ready" | (string & {});
  created_at: string;
  updated_at: string;
  pages: number | null;
  /** parts of the source that are not in the text: how many, by kind */
  unread?: Record<string, number>;
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  modified_at?: string;
  text: string | null;
  text_length: number | null;
}

export interface DocGetParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** document, by id */
  id: number;
  /** the whole text as well */
  text?: boolean;
  /** first character of the text */
  offset?: number;
  /** most characters of the text */
  length?: number;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
}

export type DocHistoryData = DocumentRevision[];

export interface DocHistoryParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** document, by id */
  id: number;
}

export interface DocIngestData {
  kb: string;
  added: number;
  updated: number;
  moved: number;
  unchanged: number;
  removed: number;
  gone: number;
  empty: number;
  failed: number;
  failed_before: number;
  unsupported: number;
  chunks: number;
  documents: Changed[];
  failures: FileFailure[];
  unsupported_paths: string[];
  unsupported_kinds?: Record<string, number>;
  skipped: Record<string, number>;
  skipped_links: LinkSkipped[];
  /** parts of the source that are not in the text: how many, by kind */
  unread: Record<string, number>;
  left_out_tags?: Record<string, string[]>;
  notes?: string[];
  purged_files?: string[];
}

export interface DocIngestParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** files and folders */
  paths: string[];
  /** knowledge base to put it in */
  kb?: string;
  /** go into folders within folders */
  recursive?: boolean;
  /** only files whose name or path matches */
  glob?: string | null;
  /** patterns to leave out */
  exclude?: string[];
  /** at most 16 tags, made kebab-case */
  tags?: string[];
  /** flat object of strings, numbers, booleans */
  metadata?: Record<string, string | number | boolean | null>;
  /** where it came from, if not from the caller: user, agent, tool, web, import. Only a person can say user */
  origin?: "agent" | "import" | "tool" | "user" | "web";
  /** remove documents whose files are gone */
  prune?: boolean;
  /** read what git ignores, dependencies, build results and lock files, too */
  all_files?: boolean;
  /** read the files in ZIP and TAR archives, each as a document */
  archives?: boolean;
  /** recognise the text of pictures and scanned pages, by tesseract */
  ocr?: boolean;
  /** as tesseract names them, such as eng, deu */
  ocr_languages?: string[];
  /** larger files are failures */
  max_file_bytes?: number;
}

export type DocListData = Document[];

export interface DocListParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** one or several; all if left out */
  kb?: string | string[] | null;
  /** only documents of these types */
  types?: ("archive" | "book" | "code" | "conversation" | "doc" | "docx" | "html" | "knowledge" | "mail" | "markdown" | "note" | "notebook" | "odt" | "pdf" | "picture" | "rtf" | "sheet" | "slides" | "table" | "text")[] | null;
  /** at most 16 tags, made kebab-case */
  tags?: string[] | null;
  /** all tags must be there, or any of them */
  tags_mode?: "all" | "any";
  /** of embedding */
  status?: "failed" | "pending" | "ready" | null;
  /** only files whose path begins so */
  path_prefix?: string | null;
  /** only what came from there */
  url?: string | null;
  /** your own name for it, unique in the kb */
  source_id?: string | null;
  /** only titles that contain this */
  title_contains?: string | null;
  /** only what came later; RFC 3339 */
  created_after?: string | null;
  /** only what came earlier; RFC 3339 */
  created_before?: string | null;
  /** only what was made or changed later; RFC 3339 */
  updated_after?: string | null;
}

export interface DocReparseData {
  updated: number;
  unchanged: number;
  failed: number;
  failures: FileFailure[];
}

export interface DocReparseParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** documents, by id */
  ids?: number[] | null;
  /** all documents of this one */
  kb?: string | null;
}

export interface DocRestoreData {
  restored: number;
  documents: Document[];
  unchanged: number[];
}

export interface DocRestoreParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** documents, by id */
  ids: number[];
  /** as it was then; for one document only */
  revision?: number | null;
  /** fail if it has changed since; for one document */
  expected_revision?: number | null;
}

export interface DocUpdateData {
  id: number;
  kb: string;
  title: string;
  type: "archive" | "book" | "code" | "conversation" | "doc" | "docx" | "html" | "knowledge" | "mail" | "markdown" | "note" | "notebook" | "odt" | "pdf" | "picture" | "rtf" | "sheet" | "slides" | "table" | "text" | (string & {});
  source: Source;
  tags: string[];
  metadata: Record<string, string | number | boolean | null>;
  revision: number;
  chunk_count: number;
  size_bytes: number;
  sha256: string;
  index_status: "failed" | "pending" | "ready" | (string & {});
  created_at: string;
  updated_at: string;
  pages: number | null;
  /** parts of the source that are not in the text: how many, by kind */
  unread?: Record<string, number>;
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  modified_at?: string;
}

export interface DocUpdateParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** document, by id */
  id: number;
  /** title */
  title?: string | null;
  /** at most 16 tags, made kebab-case */
  tags?: string[] | null;
  /** flat object of strings, numbers, booleans */
  metadata?: Record<string, string | number | boolean | null> | null;
  /** the document's text */
  text?: string | null;
  /** fail if it has changed since */
  expected_revision?: number | null;
}

export interface DocWaitData {
  ready: number;
}

export interface DocWaitParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** all that are pending if left out */
  ids?: number[] | null;
  /** only those changed after this log position */
  after_seq?: number | null;
}

/** `healthy`: nothing failed; warnings do not count. */
export interface DoctorData {
  healthy: boolean;
  findings: Finding[];
}

export interface DoctorItem {
  name: string;
  status: "fail" | "pass" | "warn" | (string & {});
  message: string;
  hint: string | null;
}

export interface DoctorParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** also rebuild every view beside the live one and compare; slow */
  deep?: boolean;
  /** salvage what can be salvaged; keeps the damaged original aside */
  repair?: boolean;
  /** also look for secrets in every text, and name the purge */
  secrets?: boolean;
}

/** A document. `unread`: left out where the whole source is in the text. `origin`: who its text is from. `modified_at`: when its file was last changed, for a file in a git repository the date of the commit that has its bytes; left out where that is unknown. */
export interface Document {
  id: number;
  kb: string;
  title: string;
  type: "archive" | "book" | "code" | "conversation" | "doc" | "docx" | "html" | "knowledge" | "mail" | "markdown" | "note" | "notebook" | "odt" | "pdf" | "picture" | "rtf" | "sheet" | "slides" | "table" | "text" | (string & {});
  source: Source;
  tags: string[];
  metadata: Record<string, string | number | boolean | null>;
  revision: number;
  chunk_count: number;
  size_bytes: number;
  sha256: string;
  index_status: "failed" | "pending" | "ready" | (string & {});
  created_at: string;
  updated_at: string;
  pages: number | null;
  /** parts of the source that are not in the text: how many, by kind */
  unread?: Record<string, number>;
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  modified_at?: string;
}

/** One record that touched a document or a note, and its state afterwards. Only actor, time and method remain where a purge has erased the state, store.compact has forgotten it or damage has lost it. */
export interface DocumentRevision {
  seq: number;
  ts: string;
  actor: string;
  method: string;
  action: "changed" | "chunks_deleted" | "created" | "deleted" | "erased" | "forgotten" | "lost" | "purged" | "replaced" | "restored" | "reviewed" | "revived" | "superseded" | (string & {});
  summary: string;
  revision: number | null;
  title: string | null;
  chunk_count: number | null;
  size_bytes: number | null;
  sha256: string | null;
}

/** An entry that is near the group's first. `relation` opposite: see `differs_in`. */
export interface Duplicate {
  id: number;
  title: string;
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  created_by: string;
  created_at: string;
  verified_at: string | null;
  score: number;
  relation: "opposite" | "same" | (string & {});
  differs_in: ("negation" | "number" | (string & {}))[];
}

/** Entries of one knowledge base that are near one of them. `stays`: the entry that the plan leaves: a verified one, else of the best origin, else the newest. `plan`: the requests that let it supersede the others; a person decides on each. */
export interface DuplicateGroup {
  kb: string;
  stays: GroupedEntry;
  others: Duplicate[];
  plan: Retry[];
}

/** The last line. `sha256` is of all lines before it with their newlines; null in a stream. */
export interface End {
  type: "end";
  documents: number;
  sha256: string | null;
  agents?: number;
  notes?: number;
  sessions?: number;
  watches?: number;
}

/** A knowledge entry. `head`: the entry that holds now; itself unless superseded. `source`: where it was learned. `expired`, `due`: at the moment of this answer. `origin`: who its text is from. `review_after`: when a person should check it again; `due` says that this day has come. `aliases`: further names, by which a search finds it as by its title. `in_review`: it waits for an approval, and only its author and reviewers see it; `replaces`: the entries that it supersedes then. Both are left out of an entry that everybody finds. `places`: files, lines and commits that it was derived from, too. `source_changed`: what it was derived from and is no longer as it was then. `valid_from`, `valid_to`: when what it says began and ceased to be true; a successor ends its predecessor's time, as far as that has no earlier end. */
export interface Entry {
  id: number;
  kb: string;
  title: string;
  tags: string[];
  confidence: number;
  expires_at: string | null;
  expired: boolean;
  task_ref: TaskRef | null;
  source: string;
  created_by: string;
  created_at: string;
  superseded_by: number | null;
  head: number;
  embedding_status: "failed" | "pending" | "ready" | (string & {});
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  derived_from: number[];
  verified_by: string | null;
  verified_at: string | null;
  review_after: string | null;
  due: boolean;
  aliases: string[];
  in_review?: boolean;
  replaces?: number[];
  valid_from?: string;
  valid_to?: string;
  places?: string[];
  source_changed?: SourceChange[];
}

/** An entry in review. `text`: the first 1,000 characters of its body; knowledge.get has all. */
export interface EntryInReview {
  id: number;
  kb: string;
  title: string;
  tags: string[];
  confidence: number;
  expires_at: string | null;
  expired: boolean;
  task_ref: TaskRef | null;
  source: string;
  created_by: string;
  created_at: string;
  superseded_by: number | null;
  head: number;
  embedding_status: "failed" | "pending" | "ready" | (string & {});
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  derived_from: number[];
  verified_by: string | null;
  verified_at: string | null;
  review_after: string | null;
  due: boolean;
  aliases: string[];
  in_review?: boolean;
  replaces?: number[];
  valid_from?: string;
  valid_to?: string;
  places?: string[];
  source_changed?: SourceChange[];
  text: string;
}

/** The data of an error, by which programs decide. `ask_again`: the request may still be done; the same one, a write with `detail.client_token`, then has the same outcome. */
export interface ErrorData {
  schema: string;
  type: "input.invalid_json" | "input.invalid_request" | "input.unknown_method" | "input.invalid_params" | "input.too_large" | "input.unsupported_type" | "knowledge.cycle" | "store.corrupt" | "store.incompatible" | "store.io" | "store.locked" | "model.unavailable" | "llm.unavailable" | "network.failed" | "operation.failed" | "internal.error" | "operation.partial" | "operation.timeout" | "resource.not_found" | "profile.not_found" | "auth.insufficient_scope" | "auth.not_owner" | "network.blocked" | "path.outside_root" | "resource.already_exists" | "resource.conflict" | "resource.plan_stale" | "quota.exceeded" | "server.overloaded" | "operation.cancelled" | "input.confirmation_required" | (string & {});
  message: string;
  exit_code: number;
  retryable: boolean | null;
  hint: string;
  doc_url: string;
  detail: Record<string, unknown>;
  retry?: ErrorRetry;
  retry_after_ms?: number;
  field?: string;
  valid_values?: unknown[];
  risk?: ErrorRisk;
  plan?: Plan;
  seq?: number;
  ask_again?: boolean;
}

/** The store could not be opened; methods that need none still answer. */
export interface ErrorEvent {
  type: "error";
  error: ErrorEventErrorData;
}

/** The data of an error, by which programs decide. `ask_again`: the request may still be done; the same one, a write with `detail.client_token`, then has the same outcome. */
export interface ErrorEventErrorData {
  schema: string;
  type: string;
  message: string;
  exit_code: number;
  retryable: boolean | null;
  hint: string;
  doc_url: string;
  detail: Record<string, unknown>;
  retry?: ErrorRetry;
  retry_after_ms?: number;
  field?: string;
  valid_values?: unknown[];
  risk?: ErrorRisk;
  plan?: Plan;
  seq?: number;
  ask_again?: boolean;
}

export interface ErrorObject {
  code: number;
  message: string;
  data: ErrorData;
}

export interface ErrorRetry {
  method: string;
  params: Record<string, unknown>;
  argv?: string[];
}

export interface ErrorRisk {
  level: string;
  action: string;
}

export interface ErrorRow {
  type: string;
  exit: number;
  code: number;
  when: string;
  hint: string;
  retryable: boolean | null;
  doc_url: string;
}

export type Event = ProcessEvent | StreamEvent;

/** The first hundred, and how many there are. */
export interface EventList {
  items: EventSummary[];
  total: number;
}

export interface EventSummary {
  type: string;
  summary: string;
}

export type EventsReadData = ShownRecord[];

export interface EventsReadParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
  /** only records after this position */
  after_seq?: number;
  /** only records of that moment or later */
  since?: string | null;
  /** only records before that moment */
  until?: string | null;
  /** only events of these types */
  types?: string[] | null;
  /** only what this actor wrote */
  actor?: string | null;
  /** document, by id */
  document_id?: number | null;
  /** with the events as they stand in the log, texts included */
  full?: boolean;
}

export interface EventsRevertData {
  reverted: Reverted[];
  documents: number;
  ids: number[];
  kbs: string[];
  kept: Kept[];
  hint: string | null;
  agents: string[];
  sessions: number[];
  left_out?: number;
}

export interface EventsRevertParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** records, by seq */
  seqs?: number[] | null;
  /** all that they did since */
  actor?: string | null;
  /** RFC 3339 time, or a seq; itself included */
  since?: string | number | null;
  /** with actor and since: undo questions and answers, too */
  sessions?: boolean;
}

export type EventsSubscribeData = null;

/** One step of the log, which happened as a whole. `events` holds those that the filters let through. `lost`: the records from there to `seq` could not be read any more and were given up. `more_events`: how many did not fit on a line. */
export interface EventsSubscribeItem {
  seq: number;
  ts: string;
  actor: string;
  method: string;
  events: ShownEvent[];
  token: string | null;
  lost?: number;
  more_events?: number;
}

export interface EventsSubscribeParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** start after this position; now if left out */
  after_seq?: number | null;
  /** only events of these types */
  types?: string[] | null;
  /** only what this actor wrote */
  actor?: string | null;
  /** document, by id */
  document_id?: number | null;
  /** with the events as they stand in the log, texts included */
  full?: boolean;
}

/** The result of a check: `records` can be read, `erased` of them lost something to a purge. */
export interface EventsVerifyData {
  records: number;
  segments: number;
  head: ChainHead;
  first_ts: string | null;
  last_ts: string | null;
  erased: number;
  lost: Stretch[];
}

export interface EventsVerifyParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
}

/** A request that a test runs; `exit` is the shell's exit code. */
export interface Example {
  params: Record<string, unknown>;
  what: string;
  exit: number;
  positional: boolean;
}

export interface FailedFile {
  path: string;
  type: string;
  message: string;
}

/** Why an answer has failed: an error's type, and what it says. */
export interface Failure {
  type: string;
  message: string;
  hint: string;
  lasting?: boolean;
  retry_after_ms?: number | null;
  detail?: Record<string, unknown>;
}

export interface FileFailure {
  path: string;
  type: string;
  message: string;
}

export interface Finding {
  name: string;
  status: "fail" | "pass" | "warn" | (string & {});
  message: string;
  hint: string | null;
}

/** One flag. `param`: the dotted member of params that it sets; None if it is the shell's own. `items`: type of a list's items; a scalar `type` with `items` takes one or several. `minimum`, `maximum` bound the value; `min_length`, `max_length` its length. `sets`: what a switch stands for. `positional`: may be given without its name. */
export interface Flag {
  name: string;
  type: "array" | "boolean" | "integer" | "json" | "number" | "object" | "string" | (string & {});
  help: string;
  param: string | null;
  items: "array" | "boolean" | "integer" | "json" | "number" | "object" | "string" | (string & {}) | null;
  default: unknown;
  required: boolean;
  positional: boolean;
  enum: unknown[] | null;
  pattern: string | null;
  minimum: number | null;
  maximum: number | null;
  min_length: number | null;
  max_length: number | null;
  env: string | null;
  mutually_exclusive: string[];
  profileable: boolean;
  sensitive: boolean;
  sets: Record<string, unknown>;
}

/** How far each index is; `pending_embeddings` counts chunks that still lack a vector. */
export interface Freshness {
  seq: number;
  fulltext_seq: number;
  vector_seq: number;
  pending_embeddings: number;
}

/** One method in full; `risk` is null for what only reads. */
export interface Full {
  name: string;
  summary: string;
  when_to_use: string;
  safety: Safety;
  risk: string | null;
  scope: string;
  own_scope: string | null;
  also_needs: string | null;
  streams: boolean;
  needs_store: boolean;
  command: string;
  alias: string | null;
  positional: string[];
  flags: Flag[];
  params: JsonSchema;
  result: JsonSchema;
  errors: string[];
  examples: Example[];
}

/** An entry of a group, without its text. */
export interface GroupedEntry {
  id: number;
  title: string;
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  created_by: string;
  created_at: string;
  verified_at: string | null;
}

/** The first line. `seq` is the exported position; `vectors` is set if vectors are included. */
export interface Header {
  type: "kbproc.export";
  version: number;
  seq: number;
  exported_at: string;
  store_format: number;
  kbproc: string;
  vectors?: VectorsOf | null;
}

/** A hit. `highlights`: character offsets into `snippet`. `explain`: only on request. `origin`: who the text is from. `verified_at`: when a person found that an entry holds. `head`: for a superseded entry, the last entry of its chain. `repeated_by`: with `distinct`, the ids of chunks that were left out because they say nearly the same. `file_gone`: true where the document's file is no longer there, so that another document may have its newer text. `replaces`: the superseded entry for which it answers, because the query's words stand there. `names`: with `about`, its names that stand in the query. `source_changed`: what an entry was derived from and is no longer as it was then; its score is a step lower. `valid_from`, `valid_to`: when its writer says that it began and ceased to be true. `conflicts`: hits of this page that give another value for what it says, and are newer or as old. */
export interface Hit {
  chunk_id: number;
  score: number;
  score_breakdown: Breakdown;
  text: string;
  snippet: string;
  highlights: ([number, number])[];
  source: HitSource;
  confidence: number | null;
  expires_at: string | null;
  superseded_by: number | null;
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  verified_at: string | null;
  head?: number;
  repeated_by?: number[];
  file_gone?: boolean;
  replaces?: number;
  names?: string[];
  source_changed?: SourceChange[];
  valid_from?: string;
  valid_to?: string;
  conflicts?: Conflict[];
  explain?: Record<string, unknown>;
}

/** The place of a hit. `chunk_index` counts from 0. Pages, section and lines are those of the chunk's best passage, or of the whole chunk if none of its words match; only text sources have lines. `cite`: a citation of the source. `said_at`: when the turn of a conversation was said. `modified_at`: when the file was last changed, for a file in a git repository the date of the commit that has its bytes. `stored_at`: when the store got it. `dated`: the first of the three that is known, as a day, and how long ago that was. `kb_description`: of the knowledge base, with the first hit from it. */
export interface HitSource {
  document_id: number;
  title: string;
  path: string | null;
  type: string;
  page: number | null;
  section: string | null;
  chunk_index: number;
  total_chunks: number;
  tags: string[];
  kb: string;
  page_end: number | null;
  start_line: number | null;
  end_line: number | null;
  cite: string;
  stored_at?: string;
  dated?: string;
  modified_at?: string;
  said_at?: string;
  kb_description?: string;
}

/** The index: every method in a line. */
export interface Index {
  name: string;
  version: string;
  protocol: string;
  more: string;
  aliases: Record<string, string>;
  methods: Line[];
}

export interface IndexRebuildData {
  seq: number;
  documents: number;
  chunks: number;
}

export interface IndexRebuildParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
}

/** One finding of a stream, as it is found: see the schema METHOD.item. */
export interface ItemEvent {
  type: "item";
  request_id: number | string;
  index: number;
  item: StoreExportItem | StoreImportItem | DoctorItem | Record<string, unknown>;
}

/** A JSON Schema of draft 2020-12, which needs no other one. */
export interface JsonSchema {
  "$schema": string;
  title: string;
  description?: string;
  type?: string;
  properties?: Record<string, unknown>;
  required?: string[];
  oneOf?: unknown[];
  additionalProperties?: boolean | Record<string, unknown>;
  discriminator?: Record<string, unknown>;
  "$defs"?: Record<string, unknown>;
}

export interface Kb {
  type: "kb";
  /** knowledge base, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
  name: string;
  description?: string;
  review?: "agents" | "all" | "none" | "web" | (string & {});
}

/** Counts are whole; the lists hold the first hundred. `partly_read`: documents whose sources hold more than their texts; `unread`: what that is, of all of them, by kind. */
export interface KbCheckData {
  slug: string;
  documents: number;
  pending: number;
  failed: number;
  stale: number;
  failed_files: FailedFile[];
  stale_files: StaleFile[];
  partly_read: number;
  /** parts of the source that are not in the text: how many, by kind */
  unread: Record<string, number>;
  partly_read_documents: PartlyRead[];
}

export interface KbCheckParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** knowledge base, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
}

export interface KbCreateData {
  slug: string;
  name: string;
  description: string;
  revision: number;
  created_at: string;
  updated_at: string;
  review?: "agents" | "all" | "none" | "web" | (string & {});
}

export interface KbCreateParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** knowledge base, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
  /** name for people */
  name?: string | null;
  /** what belongs in here */
  description?: string;
  /** which new entries wait for an approval: none, those from the web (or an import), those that are not a person's own words (agents), or all */
  review?: "agents" | "all" | "none" | "web";
}

export interface KbDeleteData {
  slug: string;
  documents: number;
}

export interface KbDeleteParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** knowledge base, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
}

/** A knowledge base. `review`: which new entries wait for an approval; left out for none. */
export interface KbGetData {
  slug: string;
  name: string;
  description: string;
  revision: number;
  created_at: string;
  updated_at: string;
  review?: "agents" | "all" | "none" | "web" | (string & {});
}

export interface KbGetParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** knowledge base, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
}

export type KbListData = KnowledgeBase[];

export interface KbListParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
}

/** `source_bytes`: size of the sources, not of the store. */
export interface KbStatusData {
  slug: string;
  documents: number;
  chunks: number;
  source_bytes: number;
  freshness: Freshness;
}

export interface KbStatusParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** knowledge base, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
}

export interface KbUpdateData {
  slug: string;
  name: string;
  description: string;
  revision: number;
  created_at: string;
  updated_at: string;
  review?: "agents" | "all" | "none" | "web" | (string & {});
}

export interface KbUpdateParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** knowledge base, by slug: 2–64 lower-case letters, digits and hyphens */
  slug: string;
  /** name for people */
  name?: string | null;
  /** what belongs in here */
  description?: string | null;
  /** which new entries wait for an approval: none, those from the web (or an import), those that are not a person's own words (agents), or all */
  review?: "agents" | "all" | "none" | "web";
  /** fail if it has changed */
  expected_revision?: number | null;
}

/** A part of record `seq` that was not undone, and why. */
export interface Kept {
  seq: number;
  why: string;
  document_id: number | null;
  kb: string | null;
  agent: string | null;
}

/** A knowledge base. `review`: which new entries wait for an approval; left out for none. */
export interface KnowledgeBase {
  slug: string;
  name: string;
  description: string;
  revision: number;
  created_at: string;
  updated_at: string;
  review?: "agents" | "all" | "none" | "web" | (string & {});
}

export interface KnowledgeDeleteData {
  deleted: number;
  ids: number[];
  revived: number[];
}

export interface KnowledgeDeleteParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** entries, by id */
  ids: number[];
}

export type KnowledgeDuplicatesData = DuplicateGroup[];

export interface KnowledgeDuplicatesParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** knowledge base, or several; all if left out */
  kb?: string | string[] | null;
  /** leave out pairs that are less near; 1 is the same text */
  min_score?: number;
}

/** An entry with its text, and the entries that it superseded directly (the first hundred). */
export interface KnowledgeGetData {
  id: number;
  kb: string;
  title: string;
  tags: string[];
  confidence: number;
  expires_at: string | null;
  expired: boolean;
  task_ref: TaskRef | null;
  source: string;
  created_by: string;
  created_at: string;
  superseded_by: number | null;
  head: number;
  embedding_status: "failed" | "pending" | "ready" | (string & {});
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  derived_from: number[];
  verified_by: string | null;
  verified_at: string | null;
  review_after: string | null;
  due: boolean;
  aliases: string[];
  in_review?: boolean;
  replaces?: number[];
  valid_from?: string;
  valid_to?: string;
  places?: string[];
  source_changed?: SourceChange[];
  body: string;
  supersedes: number[];
}

export interface KnowledgeGetParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** knowledge entry, by id */
  id: number;
  /** what was true then, as is known now: RFC 3339; entries that began later or had ceased by then are left out. as_of asks what was thought then */
  valid_at?: string | null;
  /** first character of the text */
  offset?: number;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
}

export type KnowledgeListData = Entry[];

export interface KnowledgeListParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** knowledge base, or several; all if left out */
  kb?: string | string[] | null;
  /** a task, by your own name */
  task_id?: string | null;
  /** who stored it */
  owner?: string | null;
  /** at most 16 tags, made kebab-case */
  tags?: string[] | null;
  /** all tags must be there, or any of them */
  tags_mode?: "all" | "any";
  /** only knowledge entries of this confidence or more */
  min_confidence?: number | null;
  /** knowledge entries that others have replaced, too */
  include_superseded?: boolean;
  /** knowledge entries whose time is over, too */
  include_expired?: boolean;
  /** what was true then, as is known now: RFC 3339; entries that began later or had ceased by then are left out. as_of asks what was thought then */
  valid_at?: string | null;
  /** only what was made or changed later; RFC 3339 */
  updated_after?: string | null;
  /** only what came from there or from where is trusted more: user, agent, tool, web, import; an entry that a person has verified counts as user */
  min_trust?: "agent" | "import" | "tool" | "user" | "web" | null;
  /** only entries that a person has verified, or has not */
  verified?: boolean | null;
  /** only entries that a person should check now */
  due?: boolean;
  /** only entries of which a source has changed since */
  stale?: boolean;
}

/** A page of hits. `confidence`: the level of the chance that the best hit is an answer. */
export interface KnowledgeSearchData {
  query: string;
  results: Hit[];
  total_matches: number;
  total_is_exact: boolean;
  returned: number;
  confidence: "likely" | "none" | "related" | (string & {});
}

export interface KnowledgeSearchParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** plain words, "a phrase", -word to leave out; never a syntax error */
  query: string;
  /** most hits to return */
  limit?: number;
  /** hits to pass over */
  offset?: number;
  /** words and meaning, words only, or meaning only */
  mode?: "fts" | "hybrid" | "vector";
  /** knowledge base, or several; all if left out */
  kb?: string | string[] | null;
  /** at most 16 tags, made kebab-case */
  tags?: string[] | null;
  /** all tags must be there, or any of them */
  tags_mode?: "all" | "any";
  /** a task, by your own name */
  task_id?: string | null;
  /** who stored it */
  owner?: string | null;
  /** only what came later; RFC 3339 */
  created_after?: string | null;
  /** only what came earlier; RFC 3339 */
  created_before?: string | null;
  /** leave out hits that say nearly the same as a better one */
  distinct?: boolean;
  /** knowledge entries that others have replaced, too */
  include_superseded?: boolean;
  /** knowledge entries whose time is over, too */
  include_expired?: boolean;
  /** what was true then, as is known now: RFC 3339; entries that began later or had ceased by then are left out. as_of asks what was thought then */
  valid_at?: string | null;
  /** leave out hits with a lower score */
  min_score?: number | null;
  /** leave out hits with a lower cosine */
  min_similarity?: number | null;
  /** only knowledge entries of this confidence or more */
  min_confidence?: number | null;
  /** only what came from there or from where is trusted more: user, agent, tool, web, import; an entry that a person has verified counts as user */
  min_trust?: "agent" | "import" | "tool" | "user" | "web" | null;
  /** answers: leave out hits that probably do not answer the query; related: only those that seem to have nothing to do with it */
  only?: "answers" | "related" | null;
  /** how widely vectors are searched: more is slower and surer. Without effect up to 20,000 chunks, where every vector is compared */
  ef_search?: number;
  /** blend: absolute scores in [0, 1]; rrf: by rank only; rerank: a cross-encoder reads the best hits of blend again, where one is configured */
  fusion?: "blend" | "rerank" | "rrf";
  /** length of a snippet */
  snippet_chars?: number;
  /** say how each score came about */
  explain?: boolean;
  /** where the snippet matches */
  highlight?: boolean;
  /** the whole text of each hit, beside its snippet */
  text?: boolean;
  /** length of a text on average; a longer one is cut around its best passage */
  text_chars?: number | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
}

export interface KnowledgeStoreData {
  id: number;
  kb: string;
  title: string;
  tags: string[];
  confidence: number;
  expires_at: string | null;
  expired: boolean;
  task_ref: TaskRef | null;
  source: string;
  created_by: string;
  created_at: string;
  superseded_by: number | null;
  head: number;
  embedding_status: "failed" | "pending" | "ready" | (string & {});
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  derived_from: number[];
  verified_by: string | null;
  verified_at: string | null;
  review_after: string | null;
  due: boolean;
  aliases: string[];
  in_review?: boolean;
  replaces?: number[];
  valid_from?: string;
  valid_to?: string;
  places?: string[];
  source_changed?: SourceChange[];
  similar: Similar[];
}

export interface KnowledgeStoreParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** what it says, in short */
  title: string;
  /** what was learned */
  body: string;
  /** knowledge base to put it in */
  kb?: string;
  /** at most 16 tags, made kebab-case */
  tags?: string[];
  /** how sure it is, in percent */
  confidence?: number;
  /** when it ceases to hold: RFC 3339, in the future */
  expires_at?: string | null;
  task_ref?: TaskRefParams | null;
  /** where it was learned, such as a URL; else agent or user */
  source?: string | null;
  /** where it came from, if not from the caller: user, agent, tool, web, import. Only a person can say user */
  origin?: "agent" | "import" | "tool" | "user" | "web";
  /** what it was made from: documents, entries and notes, by id; files, PATH or PATH:FIRST-LAST; commits, commit:HASH. Its origin is the least of theirs, and it is marked once one of them has changed */
  derived_from?: (number | string)[];
  /** when a person should check it again: RFC 3339, in the future */
  review_after?: string;
  /** other names for what it is about, at most 16 */
  aliases?: string[];
  /** when it began to be true: RFC 3339; else when it is stored */
  valid_from?: string;
  /** when it ceased to be true, or will: RFC 3339 */
  valid_to?: string;
}

export interface KnowledgeSupersedeData {
  old_id: number;
  new_id: number;
  head: number;
  in_review?: boolean;
}

export interface KnowledgeSupersedeParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** the entry that is replaced, by id */
  old_id: number;
  /** the entry that takes its place, by id */
  new_id: number;
}

export interface KnowledgeUnsupersedeData {
  old_id: number;
  new_id: number;
  head: number;
  in_review?: boolean;
}

export interface KnowledgeUnsupersedeParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** the entry that is replaced, by id */
  old_id: number;
  /** the entry that takes its place, by id */
  new_id: number;
}

export interface KnowledgeVerifyData {
  verified: number;
  ids: number[];
  verified_by: string;
  verified_at: string;
  review_after: string | null;
}

export interface KnowledgeVerifyParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** entries, by id */
  ids: number[];
  /** when a person should check it again: RFC 3339, in the future */
  review_after?: string | null;
}

/** A method in the index; `required`: its params that must be given. */
export interface Line {
  name: string;
  summary: string;
  kind: "destructive" | "read" | "write" | (string & {});
  required?: string[];
}

/** A symlink that was not followed; `target` can be named in its place. */
export interface LinkSkipped {
  path: string;
  target: string;
  reason: string;
}

/** The outcome for each of `documents`. `index`: the place in the request, from 0. */
export interface ManyAdded {
  added: number;
  failed: number;
  chunks: number;
  documents: Added[];
  failures: NotAdded[];
}

/** A place on the map: both coordinates are in [−1, 1], those of a query may lie beyond. */
export interface MapPlace {
  x: number;
  y: number;
}

/** A chunk on the map. `kb`: index of its knowledge base in `kbs`. */
export interface MapPoint {
  chunk_id: number;
  document_id: number;
  kb: number;
  x: number;
  y: number;
}

/** The place of a text from character `at` on; `line` is the source's, from 1. Until the next mark, each line break of the text is one of the source. */
export type Mark = [number, (number | null)?, (string | null)?, (number | null)?];

/** A question and its answer. `status` is null while the answer is being made. `references`: the passages that the answer cites; `see_also`: the others that were found. `failure` says why it has failed; `hint` what helps where there is no answer. */
export interface Message {
  message_id: number;
  question: string;
  status: "failed" | "finished" | "interrupted" | "refused" | "stopped" | (string & {}) | null;
  text: string;
  references: Reference[];
  see_also: Reference[];
  usage: Usage | null;
  hint: string | null;
  failure: Failure | null;
  asked_at: string;
  asked_by: string;
  ended_at: string | null;
}

/** The meta members of every result. `lean`: members were left out, as requested. */
export interface Meta {
  schema: string;
  seq: number;
  count?: number;
  total?: number;
  has_more?: boolean;
  next_cursor?: string;
  took_ms?: number;
  dry_run?: boolean;
  plan?: Plan;
  hint?: string;
  duplicate?: boolean;
  notice?: string[];
  partial?: Partial;
  freshness?: Freshness;
  lean?: boolean;
}

/** A change to another model that has not ended; the one in use answers until then. Of `chunks`, so many are `embedded`. `running`: in this process; otherwise a server that opens the store goes on with it, or model.use does. `problem`: why it does not go on. */
export interface ModelChange {
  name: string;
  kind: string;
  embedded: number;
  chunks: number;
  running: boolean;
  problem: string | null;
}

export interface ModelInstallData {
  name: string;
  changed: boolean;
  folder: string;
  current: boolean;
  pending: number;
  kind: "embedder" | "reranker" | (string & {});
  revision: string | null;
  licence: string | null;
  cost_ms: number | null;
}

export interface ModelInstallParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** a name of model.list, or OWNER/NAME of a model on the Hugging Face hub, maybe with @REVISION */
  name?: string;
}

export type ModelListData = ModelShown[];

export interface ModelListParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** run each model that is ready, and say how many texts a second it embeds, or how long a cross-encoder takes for one */
  measure?: boolean;
}

/** `status`: ready, needs_export (it is prepared on first use), or why it can't be had. Of `none`: that only words are searched. `size_bytes`: of the model as exported. `texts_per_second`: on one core, to compare models by; `measured_here`: the same on this machine. `ndcg_at_10`: how well meaning alone finds, by collection of docs/search.md; null, with the `remark` that says so: not measured. `task`: an embedder gives vectors, a reranker is a cross-encoder, which reads the best hits again; `cost_ms` are the milliseconds that it took here for each of some passages. Of a model on the hub, what its card says: `languages`, `licence`, `pooling`, the prefixes of queries and documents, `download_bytes`, and shorter lengths that its vectors may be cut to (`matryoshka`). */
export interface ModelShown {
  name: string;
  kind: "hash" | "none" | "onnx" | "openai" | "sentence-transformers" | (string & {});
  dim: number | null;
  max_tokens: number | null;
  status: string;
  current: boolean;
  size_bytes: number | null;
  texts_per_second: number | null;
  ndcg_at_10: Record<string, number> | null;
  task: "embedder" | "reranker" | (string & {});
  measured_here: number | null;
  cost_ms: number | null;
  remark: string | null;
  languages: string | null;
  licence: string | null;
  pooling: string | null;
  query_prefix: string | null;
  document_prefix: string | null;
  download_bytes: number | null;
  matryoshka: number[];
}

export interface ModelUseData {
  name: string;
  kind: "hash" | "none" | "onnx" | "openai" | "sentence-transformers" | (string & {});
  changed: boolean;
  embedded: number;
  pending: number;
}

export interface ModelUseParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** a name of model.list, a folder (/… or ./…), or what the endpoint calls its model */
  name?: string | null;
  /** onnx: exported once, then fast; openai: an HTTP endpoint */
  kind?: "hash" | "none" | "onnx" | "openai" | "sentence-transformers";
  /** of an OpenAI-compatible endpoint */
  url?: string | null;
  /** refused, since others may see it: use api_key_file */
  api_key?: string | null;
  /** file of mode 0600 that holds the endpoint's key */
  api_key_file?: string | null;
  /** dimensions, if they can't be asked */
  dim?: number | null;
  /** longest text it takes */
  max_tokens?: number | null;
  /** end a change that is under way, and remove its vectors; without one, take the model before */
  undo?: boolean;
}

/** The names of all. */
export interface Names {
  names: string[];
}

/** A text with its title, tags and metadata. `kb`: that of the request if left out. */
export interface NewDocument {
  /** title */
  title: string;
  /** the document's text */
  text: string;
  /** knowledge base to put it in */
  kb?: string;
  /** at most 16 tags, made kebab-case */
  tags?: string[];
  /** how the text is to be read */
  type?: "code" | "html" | "markdown" | "text";
  /** your own name for it, unique in the kb */
  source_id?: string | null;
  /** flat object of strings, numbers, booleans */
  metadata?: Record<string, string | number | boolean | null>;
  /** where it came from, if not from the caller: user, agent, tool, web, import. Only a person can say user */
  origin?: "agent" | "import" | "tool" | "user" | "web";
}

/** The error that kept a text from being added. */
export interface NotAdded {
  index: number;
  type: string;
  message: string;
  field: string;
  hint: string;
  valid_values?: unknown[];
  detail?: Record<string, unknown>;
}

/** A note's file, byte for byte. `origin`: agent where it is left out. `anchors`: its sources as they were when it was written. */
export interface Note {
  type: "note";
  agent: string;
  slug: string;
  text: string;
  updated_at: string;
  origin?: "agent" | "import" | "tool" | "user" | "web" | (string & {}) | null;
  anchors?: Anchor[];
}

/** `was`: the slug before. */
export interface NoteChange {
  agent: string;
  slug: string;
  action: "added" | "changed" | "removed" | "renamed" | "restored" | (string & {});
  was?: string | null;
}

export interface NoteDeleteData {
  id: number;
  agent: string;
  slug: string;
}

export interface NoteDeleteParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** whose notes; a process that is bound to an agent may leave it out */
  agent?: string | null;
  /** note: its file's name without .md */
  slug: string;
}

/** `text`: the file as the log knows it; `updated_by`: `file` for a person's edit by hand. */
export interface NoteGetData {
  id: number;
  slug: string;
  title: string;
  updated_at: string;
  size_bytes: number;
  revision: number;
  tags: string[];
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  source_changed?: SourceChange[];
  agent: string;
  sha256: string;
  places?: string[];
  unknown_sources?: string[];
  text: string;
  updated_by: string;
}

export interface NoteGetParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** whose notes; a process that is bound to an agent may leave it out */
  agent?: string | null;
  /** note: its file's name without .md */
  slug: string;
  /** first character of the text */
  offset?: number;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
}

/** A note in a list. `tags`: those that its front matter names. `source_changed`: what it was derived from, as its front matter says, and what has changed since. */
export interface NoteHead {
  id: number;
  slug: string;
  title: string;
  updated_at: string;
  size_bytes: number;
  revision: number;
  tags: string[];
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  source_changed?: SourceChange[];
}

export type NoteHistoryData = DocumentRevision[];

export interface NoteHistoryParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** whose notes; a process that is bound to an agent may leave it out */
  agent?: string | null;
  /** note: its file's name without .md */
  slug: string;
}

/** The best passage of a note. `highlights`: character offsets into `snippet`. `dated`: the day of `updated_at`, and how long ago that was. `source_changed`: what the note was derived from and what has changed since. */
export interface NoteHit {
  id: number;
  slug: string;
  title: string;
  score: number;
  snippet: string;
  highlights: ([number, number])[];
  section: string | null;
  updated_at: string;
  dated?: string;
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  source_changed?: SourceChange[];
}

export type NoteListData = NoteHead[];

export interface NoteListParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** whose notes; a process that is bound to an agent may leave it out */
  agent?: string | null;
  /** only what was made or changed later; RFC 3339 */
  updated_after?: string | null;
  /** only notes of which a source has changed since */
  stale?: boolean;
}

export interface NotePutData {
  id: number;
  slug: string;
  title: string;
  updated_at: string;
  size_bytes: number;
  revision: number;
  tags: string[];
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  source_changed?: SourceChange[];
  agent: string;
  sha256: string;
  places?: string[];
  unknown_sources?: string[];
}

export interface NotePutParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** whose notes; a process that is bound to an agent may leave it out */
  agent?: string | null;
  /** note: its file's name without .md */
  slug: string;
  /** the whole note, Markdown; at most 64 KiB of UTF-8 */
  text: string;
  /** fail if it has changed since */
  expected_revision?: number | null;
}

export type NoteSearchData = NoteHit[];

export interface NoteSearchParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** whose notes; a process that is bound to an agent may leave it out */
  agent?: string | null;
  /** plain words, "a phrase", -word to leave out; never a syntax error */
  query: string;
  /** most notes to return */
  limit?: number;
  /** words and meaning, words only, or meaning only */
  mode?: "fts" | "hybrid" | "vector";
  /** blend: absolute scores in [0, 1]; rrf: by rank only; rerank: a cross-encoder reads the best hits of blend again, where one is configured */
  fusion?: "blend" | "rerank" | "rrf";
  /** leave out hits with a lower score */
  min_score?: number | null;
  /** at most 16 tags, made kebab-case */
  tags?: string[] | null;
  /** only what came from there or from where is trusted more: user, agent, tool, web, import; an entry that a person has verified counts as user */
  min_trust?: "agent" | "import" | "tool" | "user" | "web" | null;
  /** answers: leave out hits that probably do not answer the query; related: only those that seem to have nothing to do with it */
  only?: "answers" | "related" | null;
  /** length of a snippet */
  snippet_chars?: number;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
}

export interface NoteSyncData {
  agents: number;
  added: number;
  changed: number;
  renamed: number;
  removed: number;
  restored: number;
  unchanged: number;
  held_back: number;
  in_folders: number | null;
  changes: NoteChange[];
  skipped: SkippedFile[];
  warnings: string[];
}

export interface NoteSyncParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** only this agent's notes; all if left out */
  agent?: string | null;
  /** write notes whose files are gone again, instead of removing them */
  restore?: boolean;
}

/** The origin of a document: at most one member is set. */
export interface Origin {
  path?: string | null;
  url?: string | null;
  source_id?: string | null;
}

/** Some items failed: the data says which; the rest is done, and nothing is undone. `exit_code`: what the shell ends with. `first`: the first failure, in words. */
export interface Partial {
  type: "operation.partial";
  exit_code: number;
  message: string;
  first?: string;
}

/** A document whose source was not read as a whole. */
export interface PartlyRead {
  document_id: number;
  title: string;
  path: string | null;
  /** parts of the source that are not in the text: how many, by kind */
  unread: Record<string, number>;
}

export interface PingData {
  seq: number;
}

export interface PingParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
}

/** What a write would do, in sentences and in numbers. `plan_hash` confirms exactly this. `targets` and `changes` are the first hundred. */
export interface Plan {
  action: string;
  targets: Target[];
  changes: string[];
  counts?: Record<string, number>;
  events: EventList;
  risk: PlanRisk;
  plan_hash: string;
}

export interface PlanApproveData {
  plan_hash: string;
  actor: string;
  method: string;
  status: "done";
  seq: number;
}

export interface PlanApproveParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan, by its plan_hash from plan.list */
  plan_hash: string;
}

/** The plans, the oldest first. `version` changes with each of them. */
export interface PlanListData {
  version: string;
  plans: WaitingPlan[];
}

export interface PlanListParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** version of an earlier answer: wait until the plans differ from it */
  after?: string | null;
}

export interface PlanRefuseData {
  plan_hash: string;
  actor: string;
  method: string;
  answered: number;
}

export interface PlanRefuseParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan, by its plan_hash from plan.list */
  plan_hash: string;
}

export interface PlanRisk {
  level: "bulk" | "high" | "low" | "medium" | (string & {});
  action: string;
}

export type ProcessEvent = ProcessInitEvent | ReadyEvent | ErrorEvent;

/** The first line of a process. */
export interface ProcessInitEvent {
  type: "init";
  protocol: string;
  server: Server;
  store: string;
  actor: string;
  scopes: string[];
  capabilities: Capabilities;
}

export interface ProgressEvent {
  type: "progress";
  request_id: number | string;
  index: number;
  stage: string;
  current: number;
  total: number | null;
  percent: number | null;
  eta_ms: number | null;
  message: string;
}

/** A limit; `used` is null for a caller that may not see the counted things. */
export interface Quota {
  name: string;
  limit: number;
  used: number | null;
}

/** How much it may keep; a member that is left out has no limit. */
export interface Quotas {
  /** most knowledge entries that it has stored */
  knowledge_stored?: number | null;
  /** most notes in its folder */
  notes_stored?: number | null;
}

/** How much it may keep; a member that is left out has no limit. */
export interface QuotasParams {
  /** most knowledge entries that it has stored */
  knowledge_stored?: number | null;
  /** most notes in its folder */
  notes_stored?: number | null;
}

/** The store is open; what was sent before is answered now. `agent` and `scopes`: to a process bound to an agent, and what both allow it. */
export interface ReadyEvent {
  type: "ready";
  seq: number;
  freshness: Freshness;
  agent?: string;
  scopes?: string[];
}

/** A passage that the answer may cite as [n]. `snippet` and `text` where they were asked for. `chunk_id` and `document_id` are null where the passage is in another store. */
export interface Reference {
  n: number;
  chunk_id: number | null;
  document_id: number | null;
  cite: string;
  score: number;
  snippet?: string | null;
  text?: string | null;
}

/** The passages that the answer may cite; session.resume continues after `cursor`. */
export interface ReferencesEvent {
  type: "references";
  request_id: number | string;
  index: number;
  cursor: string;
  message_id: number;
  references: Reference[];
}

/** A request that would succeed. The shell adds `argv`. */
export interface Retry {
  method: string;
  params: Record<string, unknown>;
  argv?: string[] | null;
}

/** A record that was reverted, wholly or in part. */
export interface Reverted {
  seq: number;
  ts: string;
  actor: string;
  method: string;
}

export interface ReviewApproveData {
  approved: number;
  ids: number[];
  superseded: number[];
}

export interface ReviewApproveParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** entries, by id */
  ids: number[];
}

export interface ReviewEditData {
  id: number;
  kb: string;
  title: string;
  tags: string[];
  confidence: number;
  expires_at: string | null;
  expired: boolean;
  task_ref: TaskRef | null;
  source: string;
  created_by: string;
  created_at: string;
  superseded_by: number | null;
  head: number;
  embedding_status: "failed" | "pending" | "ready" | (string & {});
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
  derived_from: number[];
  verified_by: string | null;
  verified_at: string | null;
  review_after: string | null;
  due: boolean;
  aliases: string[];
  in_review?: boolean;
  replaces?: number[];
  valid_from?: string;
  valid_to?: string;
  places?: string[];
  source_changed?: SourceChange[];
}

export interface ReviewEditParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** knowledge entry, by id */
  id: number;
  /** new title */
  title?: string | null;
  /** new text */
  body?: string | null;
  /** at most 16 tags, made kebab-case */
  tags?: string[] | null;
}

export type ReviewListData = EntryInReview[];

export interface ReviewListParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** knowledge base, or several; all if left out */
  kb?: string | string[] | null;
  /** who stored it */
  owner?: string | null;
}

export interface ReviewRejectData {
  rejected: number;
  ids: number[];
}

export interface ReviewRejectParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** entries, by id */
  ids: number[];
}

/** `reversible`: whether `undone_by` names methods that take it back, the closest first; null for what only reads. */
export interface Safety {
  read_only: boolean;
  idempotent: boolean;
  destructive: boolean;
  dry_run_supported: boolean;
  reversible: boolean | null;
  undone_by: string[];
}

export type SchemaData = JsonSchema | Names;

export interface SchemaParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** such as search.result; all names if left out */
  name?: string | null;
}

/** A page of hits, and what stands beside them. `turns`: the best turns of the store's own sessions, questions and answers; only with the type conversation. They are found by their words alone, are not in the counts, and have the same scale of scores. `standing`: instructions and preferences that a person gave in conversations, and that bear on the query: five at most, or those that the query requests. */
export interface SearchData {
  query: string;
  results: Hit[];
  total_matches: number;
  total_is_exact: boolean;
  returned: number;
  confidence: "likely" | "none" | "related" | (string & {});
  turns?: TurnHit[];
  standing?: StandingInstruction[];
}

/** The params of every kind of search. */
export interface SearchParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** plain words, "a phrase", -word to leave out; never a syntax error */
  query: string;
  /** most hits to return */
  limit?: number;
  /** hits to pass over */
  offset?: number;
  /** words and meaning, words only, or meaning only */
  mode?: "fts" | "hybrid" | "vector";
  /** knowledge base, or several; all if left out */
  kb?: string | string[] | null;
  /** only documents of these types */
  types?: ("archive" | "book" | "code" | "conversation" | "doc" | "docx" | "html" | "knowledge" | "mail" | "markdown" | "note" | "notebook" | "odt" | "pdf" | "picture" | "rtf" | "sheet" | "slides" | "table" | "text")[] | null;
  /** at most 16 tags, made kebab-case */
  tags?: string[] | null;
  /** all tags must be there, or any of them */
  tags_mode?: "all" | "any";
  /** members that must be equal */
  metadata?: Record<string, string | number | boolean | null> | null;
  /** only files whose path begins so */
  path_prefix?: string | null;
  /** only what came later; RFC 3339 */
  created_after?: string | null;
  /** only what came earlier; RFC 3339 */
  created_before?: string | null;
  /** only in these */
  document_ids?: number[] | null;
  /** most hits of one document */
  per_document?: number | null;
  /** leave out hits that say nearly the same as a better one */
  distinct?: boolean;
  /** only hits that the query names, if it names any */
  about?: boolean;
  /** knowledge entries that others have replaced, too */
  include_superseded?: boolean;
  /** knowledge entries whose time is over, too */
  include_expired?: boolean;
  /** what was true then, as is known now: RFC 3339; entries that began later or had ceased by then are left out. as_of asks what was thought then */
  valid_at?: string | null;
  /** leave out hits with a lower score */
  min_score?: number | null;
  /** leave out hits with a lower cosine */
  min_similarity?: number | null;
  /** only knowledge entries of this confidence or more */
  min_confidence?: number | null;
  /** only what came from there or from where is trusted more: user, agent, tool, web, import; an entry that a person has verified counts as user */
  min_trust?: "agent" | "import" | "tool" | "user" | "web" | null;
  /** answers: leave out hits that probably do not answer the query; related: only those that seem to have nothing to do with it */
  only?: "answers" | "related" | null;
  /** how widely vectors are searched: more is slower and surer. Without effect up to 20,000 chunks, where every vector is compared */
  ef_search?: number;
  /** blend: absolute scores in [0, 1]; rrf: by rank only; rerank: a cross-encoder reads the best hits of blend again, where one is configured */
  fusion?: "blend" | "rerank" | "rrf";
  /** length of a snippet */
  snippet_chars?: number;
  /** say how each score came about */
  explain?: boolean;
  /** where the snippet matches */
  highlight?: boolean;
  /** the whole text of each hit, beside its snippet */
  text?: boolean;
  /** length of a text on average; a longer one is cut around its best passage */
  text_chars?: number | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
}

/** Which documents: all members that are given must hold. */
export interface Selection {
  /** knowledge base, or several; all if left out */
  kb?: string | string[] | null;
  /** only documents of these types */
  types?: ("archive" | "book" | "code" | "conversation" | "doc" | "docx" | "html" | "knowledge" | "mail" | "markdown" | "note" | "notebook" | "odt" | "pdf" | "picture" | "rtf" | "sheet" | "slides" | "table" | "text")[] | null;
  /** at most 16 tags, made kebab-case */
  tags?: string[] | null;
  /** all tags must be there, or any of them */
  tags_mode?: "all" | "any";
  /** members that must be equal */
  metadata?: Record<string, string | number | boolean | null> | null;
  /** only files whose path begins so */
  path_prefix?: string | null;
  /** only what came from there */
  url?: string | null;
  /** your own name for it, unique in the kb */
  source_id?: string | null;
  /** only titles that contain this */
  title_contains?: string | null;
  /** only what came later; RFC 3339 */
  created_after?: string | null;
  /** only what came earlier; RFC 3339 */
  created_before?: string | null;
}

export interface Server {
  name: string;
  version: string;
}

/** A conversation. `kb` is null where it may use all that its agent, if any, sees. */
export interface Session {
  id: number;
  title: string;
  kb: string[] | null;
  agent: string | null;
  message_count: number;
  created_at: string;
  created_by: string;
  updated_at: string;
}

export interface SessionAskData {
  session_id: number;
  message_id: number;
  status: "failed" | "finished" | "interrupted" | "refused" | "stopped" | (string & {});
  text: string;
  references: Reference[];
  see_also: Reference[];
  usage: Usage | null;
}

export interface SessionAskParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** session, by id */
  session_id: number;
  /** the question, in plain words */
  question: string;
  /** how much of each passage is returned: ids only, a snippet, or its text */
  references?: "full" | "indexes" | "snippets";
  /** most tokens of passages, about */
  budget_tokens?: number;
}

export interface SessionCreateData {
  id: number;
  title: string;
  kb: string[] | null;
  agent: string | null;
  message_count: number;
  created_at: string;
  created_by: string;
  updated_at: string;
}

export interface SessionCreateParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** what it is about */
  title?: string;
  /** knowledge base to answer from, or several; all if left out */
  kb?: string | string[] | null;
  /** agent, by slug: 2–64 lower-case letters, digits and hyphens */
  agent?: string | null;
}

export interface SessionDeleteData {
  deleted: number;
  ids: number[];
}

export interface SessionDeleteParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** sessions, by id */
  session_ids: number[];
}

/** A conversation with its last messages, oldest first. */
export interface SessionGetData {
  id: number;
  title: string;
  kb: string[] | null;
  agent: string | null;
  message_count: number;
  created_at: string;
  created_by: string;
  updated_at: string;
  messages: Message[];
}

export interface SessionGetParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** session, by id */
  session_id: number;
  /** most messages, the last ones */
  limit?: number;
  /** only messages before this one */
  before?: number | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
}

export type SessionListData = Session[];

export interface SessionListParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** only what came later; RFC 3339 */
  created_after?: string | null;
  /** only what came earlier; RFC 3339 */
  created_before?: string | null;
  /** only what was made or changed later; RFC 3339 */
  updated_after?: string | null;
  /** only those with this agent */
  agent?: string | null;
  /** only those that may use this */
  kb?: string | null;
  /** only where title or questions hold it */
  text?: string | null;
}

/** The outcome of an answer; `text` as far as it came. `references`: the passages that it cites; `see_also`: the others that were found. */
export interface SessionResumeData {
  session_id: number;
  message_id: number;
  status: "failed" | "finished" | "interrupted" | "refused" | "stopped" | (string & {});
  text: string;
  references: Reference[];
  see_also: Reference[];
  usage: Usage | null;
}

export interface SessionResumeParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** session, by id */
  session_id: number;
  /** message, by id */
  message_id: number;
  /** cursor of the last event that came */
  after?: string | null;
  /** what there is by now as one event, then what comes */
  snapshot?: boolean;
}

export type SessionSearchData = TurnHit[];

export interface SessionSearchParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** plain words, "a phrase", -word to leave out; never a syntax error */
  query: string;
  /** most hits to return */
  limit?: number;
  /** hits to pass over */
  offset?: number;
  /** only what came later; RFC 3339 */
  created_after?: string | null;
  /** only what came earlier; RFC 3339 */
  created_before?: string | null;
  /** only what was made or changed later; RFC 3339 */
  updated_after?: string | null;
  /** only those with this agent */
  agent?: string | null;
  /** only those that may use this */
  kb?: string | null;
  /** leave out hits with a lower score */
  min_score?: number | null;
  /** length of a snippet */
  snippet_chars?: number;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
}

export interface SessionStopData {
  session_id: number;
  message_id: number;
  stopped: boolean;
  status: "failed" | "finished" | "interrupted" | "refused" | "stopped" | (string & {});
}

export interface SessionStopParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** session, by id */
  session_id: number;
  /** message, by id */
  message_id: number;
}

/** One event. `document_id`, `kb` and `revision` are null where it concerns none; `session_id` and `message_id` are there where it concerns one. `data`, only with `full`: the event as it stands in the log. `left_out`: what of `data` is missing, since the record would be too long for a line. */
export interface ShownEvent {
  type: string;
  summary: string;
  document_id: number | null;
  kb: string | null;
  revision: number | null;
  session_id?: number;
  message_id?: number;
  data?: Record<string, unknown>;
  left_out?: "chunks" | "data" | (string & {});
}

/** One step of the log, which happened as a whole. `events` holds those that the filters let through. `lost`: the records from there to `seq` could not be read any more and were given up. `more_events`: how many did not fit on a line. */
export interface ShownRecord {
  seq: number;
  ts: string;
  actor: string;
  method: string;
  events: ShownEvent[];
  token: string | null;
  lost?: number;
  more_events?: number;
}

/** An entry that is similar to a new one. `score`: 1 for the same text. */
export interface Similar {
  id: number;
  title: string;
  score: number;
}

export interface SkippedFile {
  agent: string;
  file: string;
  reason: string;
}

/** A document's origin: one of path, url and source_id, or none of them. `ocr`: true where text recognition has read it, wholly or in part. */
export interface Source {
  path: string | null;
  url: string | null;
  source_id: string | null;
  ocr?: boolean;
}

/** A source that is no longer as it was when the entry was derived from it. `cite`: the source in words. `was_revision`: the document's revision then; `revision`: its revision now, the same where only its file has changed. Lines are those of then. */
export interface SourceChange {
  change: "changed" | "gone" | "reverted" | "superseded" | (string & {});
  cite: string;
  document_id?: number | null;
  was_revision?: number | null;
  revision?: number | null;
  path?: string | null;
  start_line?: number | null;
  end_line?: number | null;
  commit?: string | null;
}

/** Labels that the source states itself; see events.document.SourceFacts. */
export interface SourceFacts {
  /** at most 16 tags, made kebab-case */
  tags?: string[];
  metadata?: Record<string, string | number | boolean | null>;
  unread?: Record<string, number>;
  stamp?: string;
}

/** `rows`: values in the order of `columns`, whose types are DuckDB's. */
export interface SqlQueryData {
  columns: Column[];
  rows: unknown[][];
}

export interface SqlQueryParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number;
  /** one SELECT over documents, chunks, tags, knowledge_bases, events, failures; DESCRIBE documents tells a view's columns */
  sql: string;
  /** values for ? and $1 as a list, for $name as an object */
  params?: (string | number | boolean | null)[] | Record<string, string | number | boolean | null>;
  /** most rows to return */
  limit?: number;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
}

/** A document whose file has changed or is gone. */
export interface StaleFile {
  document_id: number;
  path: string;
  state: string;
}

/** An instruction or a preference of a person that holds on, in their words. `said_at`: when they said it, or when the conversation was added, where it has no times. `origin`: who the conversation is from. */
export interface StandingInstruction {
  text: string;
  cite: string;
  document_id: number;
  chunk_id: number;
  said_at: string;
  origin: "agent" | "import" | "tool" | "user" | "web" | (string & {});
}

/** `documents`: type → count. `embedding_dim` is null while no model is ready. `model_change`: a change to another model that has not ended. `watched`: the watched folders, if there are any. `in_review`: entries that wait for an approval, if there are any. */
export interface StatusData {
  store: string;
  documents: Record<string, number>;
  total_documents: number;
  total_chunks: number;
  knowledge_bases: number;
  db_size_bytes: number;
  model_name: string | null;
  model_state: string;
  embedding_dim: number | null;
  schema_version: number;
  seq: number;
  freshness: Freshness;
  model_change?: ModelChange;
  watched?: Watch[];
  in_review?: number;
}

export interface StatusParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
}

export interface StoreBackupData {
  path: string;
  seq: number;
  files: number;
  bytes: number;
}

export interface StoreBackupParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** must not exist yet */
  path: string;
}

export interface StoreCompactData {
  contents: number;
  records: number;
  sources: number;
  vectors: number;
  bytes: number;
}

export interface StoreCompactParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** what was replaced or deleted until then goes; RFC 3339 */
  before: string;
}

/** Counts of what was exported, and of what was not; without `path` it went out as events. `entries` are among the `documents`. */
export interface StoreExportData {
  path: string | null;
  seq: number;
  kbs: number;
  documents: number;
  bytes: number;
  sources_left_out: number;
  documents_left_out: number;
  entries: number;
  agents: number;
  notes: number;
  vectors: number;
  sessions: number;
  watches: number;
}

export type StoreExportItem = Header | Kb | StoreExportItemAgent | StoreExportItemWatch | StoreExportItemDocument | Note | StoreExportItemSession | End;

/** An agent. Omitted members mean all knowledge bases, all scopes, the store's folder. */
export interface StoreExportItemAgent {
  type: "agent";
  slug: string;
  /** what it is for */
  description?: string;
  /** knowledge bases that it sees; all if never given */
  kbs?: string[] | null;
  /** folder of its notes; STORE/notes/SLUG otherwise */
  folder?: string | null;
  /** what it may do; all if never given */
  scopes?: string[] | null;
  quotas?: Quotas;
  /** how it is to answer, in its own words */
  instructions?: string;
}

/** A document. `sha256` and `size_bytes` are the source's, whether it is included or not. `entry`: only for a knowledge entry, whose body is the source and always included. `vectors`: one for each chunk in order, 16-bit floats, little-endian; null for a chunk without one. `origin`: left out where it is web for a document with a url, user for one that user created, and agent for others. */
export interface StoreExportItemDocument {
  type: "document";
  /** document, by id */
  id: number;
  /** knowledge base, by slug: 2–64 lower-case letters, digits and hyphens */
  kb: string;
  /** title */
  title: string;
  doc_type: "archive" | "book" | "code" | "conversation" | "doc" | "docx" | "html" | "knowledge" | "mail" | "markdown" | "note" | "notebook" | "odt" | "pdf" | "picture" | "rtf" | "sheet" | "slides" | "table" | "text" | (string & {});
  source: Origin;
  /** at most 16 tags, made kebab-case */
  tags: string[];
  metadata: Record<string, string | number | boolean | null>;
  revision: number;
  created_at: string;
  updated_at: string;
  created_by: string;
  parser: number;
  sha256: string;
  size_bytes: number;
  chunks: Chunk[];
  source_base64?: string | null;
  entry?: StoreExportItemEntry | null;
  source_facts?: SourceFacts | null;
  vectors?: (string | null)[] | null;
  origin?: "agent" | "import" | "tool" | "user" | "web" | (string & {}) | null;
  modified_at?: string | null;
  pages?: number | null;
  aliases?: string[];
}

/** The members that only entries have; `superseded_by` is an entry's id in the same file. `derived_from`, `replaces`: ids of documents and entries, in the same file where it holds them. */
export interface StoreExportItemEntry {
  confidence: number;
  source?: string;
  expires_at?: string | null;
  /** a task, by your own name */
  task_id?: string | null;
  task_kind?: "produced" | "references" | (string & {}) | null;
  review_after?: string | null;
  derived_from?: number[];
  valid_from?: string | null;
  valid_to?: string | null;
  anchors?: Anchor[];
  in_review?: boolean;
  replaces?: number[];
  /** document, by id */
  superseded_by?: number | null;
  verified_by?: string | null;
  verified_at?: string | null;
}

/** A question and its answer. References name documents by their ids in the file. */
export interface StoreExportItemMessage {
  question: string;
  asked_at: string;
  asked_by: string;
  answerer: string;
  status: "failed" | "finished" | "interrupted" | "refused" | "stopped" | (string & {});
  ended_at: string;
  model?: string | null;
  detail?: "full" | "indexes" | "snippets" | (string & {});
  references?: Reference[];
  text?: string;
  usage?: Usage | null;
  hint?: string | null;
  failure?: Failure | null;
}

/** A conversation with its questions and answers; `key` is unique across stores. */
export interface StoreExportItemSession {
  type: "session";
  key: string;
  created_at: string;
  created_by: string;
  title?: string;
  /** knowledge bases that it sees; all if never given */
  kbs?: string[] | null;
  agent?: string | null;
  messages?: StoreExportItemMessage[];
}

/** A watched folder and its rules; see events.watch.FolderWatched. */
export interface StoreExportItemWatch {
  type: "watch";
  machine: string;
  path: string;
  /** knowledge base, by slug: 2–64 lower-case letters, digits and hyphens */
  kb: string;
  root?: string | null;
  glob?: string | null;
  exclude?: string[];
  /** at most 16 tags, made kebab-case */
  tags?: string[];
  prune?: "ask" | "auto" | "never" | (string & {});
  all_files?: boolean;
  max_file_bytes?: number;
  poll?: boolean;
  origin?: "agent" | "import" | "tool" | "user" | "web" | (string & {});
}

export interface StoreExportParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** must not exist yet */
  path?: string | null;
  /** one or several; all if left out */
  kb?: string | string[] | null;
  /** the original bytes as well */
  sources?: boolean;
  /** vectors as well: a store with the same model need not embed again */
  vectors?: boolean;
}

export interface StoreImportData {
  added: number;
  updated: number;
  unchanged: number;
  conflicts: number;
  kbs_created: number;
  ids: Record<string, number>;
  links: number;
  agents_created: number;
  agents_kept: number;
  notes_added: number;
  notes_unchanged: number;
  notes_kept: number;
  folders_left: number;
  vectors: number;
  sessions_added: number;
  sessions_unchanged: number;
  watches_added: number;
  in_review: number;
  sources_left: number;
  places_left: number;
}

/** The outcome of one document: its id in the file, and its id in this store. */
export interface StoreImportItem {
  old: number;
  new: number | null;
  action: "added" | "conflict" | "unchanged" | "updated" | (string & {});
}

export interface StoreImportParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** a file from store.export */
  path: string;
  /** put everything into this one */
  kb?: string | null;
  /** make a new revision of what is here with other content */
  replace?: boolean;
  /** let new agents have the notes folders that the file names; else the store's own */
  folders?: boolean;
  /** take over the origins and verifications that the file states, which a person vouches for; else all that comes in counts as import */
  keep_origins?: boolean;
}

export interface StoreMoveData {
  stream: string | null;
  seq: number;
  hash: string;
}

export interface StoreMoveParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** http://HOST:PORT of each, which tells whether it syncs */
  monitor?: string[];
  /** take the loss of acknowledged writes in a power cut into account */
  unsafe_sync?: boolean;
  /** a .creds file of NATS, or a file with one line NAME:PASSWORD; mode 0600 */
  credentials?: string | null;
  /** nats://HOST:PORT of each server, or file */
  to: string[];
  /** what the servers call the store; another name for each store */
  stream?: string;
  /** how many servers keep each record; 3 where three are named, else 1 */
  replicas?: number | null;
}

export interface StorePurgeData {
  purged: number;
  ids: number[];
  records: number;
  sources: number;
  vectors: number;
  sessions: number;
}

export interface StorePurgeParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** plan_hash of the plan a person approved */
  confirm?: string | null;
  /** documents, entries and notes, deleted ones too */
  document_ids?: number[] | null;
  /** sessions, deleted ones too */
  session_ids?: number[] | null;
}

export type StreamEvent = StreamInitEvent | ProgressEvent | ItemEvent | WarningEvent | ReferencesEvent | AnswerEvent;

/** The first event of a stream. An answer's tells whose it is; `kb` null: all that may be seen. */
export interface StreamInitEvent {
  type: "init";
  request_id: number | string;
  index: number;
  session_id?: number;
  message_id?: number;
  kb?: string[] | null;
  agent?: string | null;
  profile?: string | null;
}

/** A range of records that were given up, both ends included. */
export interface Stretch {
  first_seq: number;
  last_seq: number;
}

/** Everything, of every method. */
export interface Surface {
  name: string;
  version: string;
  protocol: string;
  schema_version: number;
  capabilities: Capabilities;
  methods: Full[];
  events: string[];
  errors: ErrorRow[];
  aliases: Record<string, string>;
  exit_codes: Record<string, string>;
  scopes: string[];
  environment: Variable[];
  profiles: string[];
}

export interface TagCount {
  name: string;
  count: number;
}

export type TagListData = TagCount[];

export interface TagListParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
  /** knowledge base, or several; all if left out */
  kb?: string | string[] | null;
  /** by name, or the most used first, as the shell has them */
  order?: "count" | "name";
}

/** What a write touches, named for people; `revision` is what a plan is bound to. */
export interface Target {
  kind: string;
  id: number | string;
  name: string;
  revision?: number | null;
}

/** Which task an entry has to do with; `produced`: it came out of it. */
export interface TaskRef {
  /** a task, by your own name */
  task_id: string;
  /** how it relates */
  kind: "produced" | "references" | (string & {});
}

/** Which task an entry has to do with; `produced`: it came out of it. */
export interface TaskRefParams {
  /** a task, by your own name */
  task_id: string;
  /** how it relates */
  kind?: "produced" | "references";
}

/** A turn of a session. `turn` counts from 1. `highlights`: character offsets into `snippet`. `asked_at` is its time; `cite`: a citation of session, turn and time; `dated`: the day of `asked_at`, and how long ago that was. */
export interface TurnHit {
  session_id: number;
  message_id: number;
  turn: number;
  title: string;
  score: number;
  snippet: string;
  highlights: ([number, number])[];
  agent: string | null;
  asked_at: string;
  asked_by: string;
  cite: string;
  dated?: string;
}

/** An example as a command line and as params; `exit` is what the shell ends with. */
export interface Typed {
  what: string;
  command: string;
  params: Record<string, unknown>;
  exit: number;
}

/** What an answer has cost. Tokens are null where the endpoint does not tell them. */
export interface Usage {
  answerer: string;
  model: string | null;
  passages: number;
  input_tokens: number | null;
  output_tokens: number | null;
}

/** An environment variable that kbproc reads. */
export interface Variable {
  name: string;
  meaning: string;
}

/** The model that made the vectors. `fingerprint`: a digest of its weights, their precision, and how much of a text it reads. */
export interface VectorsOf {
  model: string;
  fingerprint: string;
  dim: number;
}

/** `libraries`: name → version of what does the work. */
export interface VersionData {
  kbproc: string;
  protocol: string;
  schema: number;
  python: string;
  libraries: Record<string, string>;
}

export interface VersionParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
}

/** A plan, who asked for it, and over which surface. `waits`: the request is still open, and the decision answers it. `params` is empty where the request is long. */
export interface WaitingPlan {
  plan_hash: string;
  actor: string;
  method: string;
  params: Record<string, unknown>;
  surface: string;
  asked_at: string;
  waits: boolean;
  plan: Plan;
}

/** A warning in a stream. In an answer it has a cursor and a kind: a piece was `replaced`, as it was erased; the answer is `degraded`; or it was `restarted`, and earlier events are void. */
export interface WarningEvent {
  type: "warning";
  request_id: number | string;
  index: number;
  message: string;
  cursor?: string;
  message_id?: number;
  kind?: "degraded" | "replaced" | "restarted" | (string & {});
}

/** A watched folder. `state`: `starting` until its files are compared for the first time, then `current`, or `reading` while changes are read; `missing`: what was approved is not there; `failed`: it could not be read, and is tried again; `warnings` say why; `idle`: no process watches it now; `elsewhere`: it is on another machine, or was not approved here. The members after it are there while a process watches it: `pending` files are to be read, `without_file` documents have lost their files, `held_back` of them wait for a person's approval, `failed` files could not be read. `synced_at`: when the documents last were in step. */
export interface Watch {
  path: string;
  kb: string;
  machine: string;
  glob: string | null;
  exclude: string[];
  tags: string[];
  prune: "ask" | "auto" | "never" | (string & {});
  all_files: boolean;
  max_file_bytes: number;
  poll: boolean;
  added_at: string;
  added_by: string;
  state?: "current" | "elsewhere" | "failed" | "idle" | "missing" | "reading" | "starting" | (string & {});
  files?: number;
  pending?: number;
  without_file?: number;
  held_back?: number;
  failed?: number;
  synced_at?: string | null;
  warnings?: string[];
}

export interface WatchAddData {
  path: string;
  kb: string;
  machine: string;
  glob: string | null;
  exclude: string[];
  tags: string[];
  prune: "ask" | "auto" | "never" | (string & {});
  all_files: boolean;
  max_file_bytes: number;
  poll: boolean;
  added_at: string;
  added_by: string;
  state?: "current" | "elsewhere" | "failed" | "idle" | "missing" | "reading" | "starting" | (string & {});
  files?: number;
  pending?: number;
  without_file?: number;
  held_back?: number;
  failed?: number;
  synced_at?: string | null;
  warnings?: string[];
}

export interface WatchAddParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  folder: string;
  /** knowledge base to put it in */
  kb?: string;
  /** only files whose name or path matches */
  glob?: string | null;
  /** patterns to leave out */
  exclude?: string[];
  /** at most 16 tags, made kebab-case */
  tags?: string[];
  /** documents whose files are gone: removed by hand, by themselves or never */
  prune?: "ask" | "auto" | "never";
  /** read what git ignores, dependencies, build results and lock files, too */
  all_files?: boolean;
  /** look every few seconds, where changes are not reported */
  poll?: boolean;
  /** larger files are failures */
  max_file_bytes?: number;
}

export type WatchListData = Watch[];

export interface WatchListParams {
  /** wait until this log position is applied */
  min_seq?: number | null;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  /** only these members of each item, such as title or source.cite */
  fields?: string[] | null;
  /** about so many tokens at most, the rest on a next page */
  budget_tokens?: number | null;
  /** most items to return */
  limit?: number;
  /** next_cursor of the page before */
  cursor?: string | null;
  /** what it would have answered then: a log position or an RFC 3339 time */
  as_of?: number | string | null;
}

export interface WatchRemoveData {
  path: string;
  kb: string;
  machine: string;
  glob: string | null;
  exclude: string[];
  tags: string[];
  prune: "ask" | "auto" | "never" | (string & {});
  all_files: boolean;
  max_file_bytes: number;
  poll: boolean;
  added_at: string;
  added_by: string;
  state?: "current" | "elsewhere" | "failed" | "idle" | "missing" | "reading" | "starting" | (string & {});
  files?: number;
  pending?: number;
  without_file?: number;
  held_back?: number;
  failed?: number;
  synced_at?: string | null;
  warnings?: string[];
}

export interface WatchRemoveParams {
  /** makes the write happen exactly once: same token, same outcome */
  client_token?: string | null;
  /** only tell what would happen */
  dry_run?: boolean;
  /** give up after this many milliseconds */
  timeout_ms?: number | null;
  folder: string;
  /** where the folder is */
  machine?: string | null;
}

/** Each method's params, result data and stream items. */
export interface Methods {
  "ping": { params: PingParams; data: PingData; item: never; kind: "read" };
  "version": { params: VersionParams; data: VersionData; item: never; kind: "read" };
  "describe": { params: DescribeParams; data: DescribeData; item: never; kind: "read" };
  "schema": { params: SchemaParams; data: SchemaData; item: never; kind: "read" };
  "status": { params: StatusParams; data: StatusData; item: never; kind: "read" };
  "store.backup": { params: StoreBackupParams; data: StoreBackupData; item: never; kind: "write" };
  "store.export": { params: StoreExportParams; data: StoreExportData; item: StoreExportItem; kind: "read" };
  "store.import": { params: StoreImportParams; data: StoreImportData; item: StoreImportItem; kind: "write" };
  "store.compact": { params: StoreCompactParams; data: StoreCompactData; item: never; kind: "destructive" };
  "store.purge": { params: StorePurgeParams; data: StorePurgeData; item: never; kind: "destructive" };
  "doctor": { params: DoctorParams; data: DoctorData; item: DoctorItem; kind: "read" };
  "index.rebuild": { params: IndexRebuildParams; data: IndexRebuildData; item: never; kind: "write" };
  "store.move": { params: StoreMoveParams; data: StoreMoveData; item: never; kind: "write" };
  "cluster.init": { params: ClusterInitParams; data: ClusterInitData; item: never; kind: "write" };
  "cluster.join": { params: ClusterJoinParams; data: ClusterJoinData; item: never; kind: "write" };
  "cluster.leave": { params: ClusterLeaveParams; data: ClusterLeaveData; item: never; kind: "write" };
  "cluster.reseed": { params: ClusterReseedParams; data: ClusterReseedData; item: never; kind: "destructive" };
  "cluster.status": { params: ClusterStatusParams; data: ClusterStatusData; item: never; kind: "read" };
  "model.install": { params: ModelInstallParams; data: ModelInstallData; item: never; kind: "write" };
  "model.list": { params: ModelListParams; data: ModelListData; item: never; kind: "read" };
  "model.use": { params: ModelUseParams; data: ModelUseData; item: never; kind: "write" };
  "sql.query": { params: SqlQueryParams; data: SqlQueryData; item: never; kind: "read" };
  "kb.create": { params: KbCreateParams; data: KbCreateData; item: never; kind: "write" };
  "kb.list": { params: KbListParams; data: KbListData; item: never; kind: "read" };
  "kb.get": { params: KbGetParams; data: KbGetData; item: never; kind: "read" };
  "kb.update": { params: KbUpdateParams; data: KbUpdateData; item: never; kind: "write" };
  "kb.delete": { params: KbDeleteParams; data: KbDeleteData; item: never; kind: "destructive" };
  "kb.status": { params: KbStatusParams; data: KbStatusData; item: never; kind: "read" };
  "kb.check": { params: KbCheckParams; data: KbCheckData; item: never; kind: "read" };
  "doc.ingest": { params: DocIngestParams; data: DocIngestData; item: never; kind: "write" };
  "chats.add": { params: ChatsAddParams; data: ChatsAddData; item: never; kind: "write" };
  "chats.export": { params: ChatsExportParams; data: ChatsExportData; item: never; kind: "read" };
  "doc.create": { params: DocCreateParams; data: DocCreateData; item: never; kind: "write" };
  "doc.fetch": { params: DocFetchParams; data: DocFetchData; item: never; kind: "write" };
  "doc.reparse": { params: DocReparseParams; data: DocReparseData; item: never; kind: "write" };
  "doc.list": { params: DocListParams; data: DocListData; item: never; kind: "read" };
  "doc.get": { params: DocGetParams; data: DocGetData; item: never; kind: "read" };
  "doc.update": { params: DocUpdateParams; data: DocUpdateData; item: never; kind: "write" };
  "doc.delete": { params: DocDeleteParams; data: DocDeleteData; item: never; kind: "destructive" };
  "doc.download": { params: DocDownloadParams; data: DocDownloadData; item: never; kind: "read" };
  "doc.wait": { params: DocWaitParams; data: DocWaitData; item: never; kind: "read" };
  "doc.history": { params: DocHistoryParams; data: DocHistoryData; item: never; kind: "read" };
  "doc.restore": { params: DocRestoreParams; data: DocRestoreData; item: never; kind: "write" };
  "events.revert": { params: EventsRevertParams; data: EventsRevertData; item: never; kind: "destructive" };
  "plan.list": { params: PlanListParams; data: PlanListData; item: never; kind: "read" };
  "plan.approve": { params: PlanApproveParams; data: PlanApproveData; item: never; kind: "write" };
  "plan.refuse": { params: PlanRefuseParams; data: PlanRefuseData; item: never; kind: "write" };
  "watch.add": { params: WatchAddParams; data: WatchAddData; item: never; kind: "write" };
  "watch.list": { params: WatchListParams; data: WatchListData; item: never; kind: "read" };
  "watch.remove": { params: WatchRemoveParams; data: WatchRemoveData; item: never; kind: "write" };
  "chunk.list": { params: ChunkListParams; data: ChunkListData; item: never; kind: "read" };
  "chunk.get": { params: ChunkGetParams; data: ChunkGetData; item: never; kind: "read" };
  "chunk.map": { params: ChunkMapParams; data: ChunkMapData; item: never; kind: "read" };
  "chunk.delete": { params: ChunkDeleteParams; data: ChunkDeleteData; item: never; kind: "destructive" };
  "tag.list": { params: TagListParams; data: TagListData; item: never; kind: "read" };
  "search": { params: SearchParams; data: SearchData; item: never; kind: "read" };
  "knowledge.store": { params: KnowledgeStoreParams; data: KnowledgeStoreData; item: never; kind: "write" };
  "knowledge.search": { params: KnowledgeSearchParams; data: KnowledgeSearchData; item: never; kind: "read" };
  "knowledge.get": { params: KnowledgeGetParams; data: KnowledgeGetData; item: never; kind: "read" };
  "knowledge.list": { params: KnowledgeListParams; data: KnowledgeListData; item: never; kind: "read" };
  "knowledge.supersede": { params: KnowledgeSupersedeParams; data: KnowledgeSupersedeData; item: never; kind: "write" };
  "knowledge.unsupersede": { params: KnowledgeUnsupersedeParams; data: KnowledgeUnsupersedeData; item: never; kind: "write" };
  "knowledge.verify": { params: KnowledgeVerifyParams; data: KnowledgeVerifyData; item: never; kind: "write" };
  "knowledge.duplicates": { params: KnowledgeDuplicatesParams; data: KnowledgeDuplicatesData; item: never; kind: "read" };
  "knowledge.delete": { params: KnowledgeDeleteParams; data: KnowledgeDeleteData; item: never; kind: "destructive" };
  "review.list": { params: ReviewListParams; data: ReviewListData; item: never; kind: "read" };
  "review.approve": { params: ReviewApproveParams; data: ReviewApproveData; item: never; kind: "write" };
  "review.edit": { params: ReviewEditParams; data: ReviewEditData; item: never; kind: "write" };
  "review.reject": { params: ReviewRejectParams; data: ReviewRejectData; item: never; kind: "write" };
  "note.search": { params: NoteSearchParams; data: NoteSearchData; item: never; kind: "read" };
  "note.get": { params: NoteGetParams; data: NoteGetData; item: never; kind: "read" };
  "note.list": { params: NoteListParams; data: NoteListData; item: never; kind: "read" };
  "note.put": { params: NotePutParams; data: NotePutData; item: never; kind: "write" };
  "note.delete": { params: NoteDeleteParams; data: NoteDeleteData; item: never; kind: "destructive" };
  "note.sync": { params: NoteSyncParams; data: NoteSyncData; item: never; kind: "write" };
  "note.history": { params: NoteHistoryParams; data: NoteHistoryData; item: never; kind: "read" };
  "agent.create": { params: AgentCreateParams; data: AgentCreateData; item: never; kind: "write" };
  "agent.list": { params: AgentListParams; data: AgentListData; item: never; kind: "read" };
  "agent.get": { params: AgentGetParams; data: AgentGetData; item: never; kind: "read" };
  "agent.update": { params: AgentUpdateParams; data: AgentUpdateData; item: never; kind: "write" };
  "agent.delete": { params: AgentDeleteParams; data: AgentDeleteData; item: never; kind: "destructive" };
  "agent.status": { params: AgentStatusParams; data: AgentStatusData; item: never; kind: "read" };
  "agent.check": { params: AgentCheckParams; data: AgentCheckData; item: never; kind: "read" };
  "agent.invoke": { params: AgentInvokeParams; data: AgentInvokeData; item: never; kind: "write" };
  "chat": { params: ChatParams; data: ChatData; item: never; kind: "write" };
  "session.create": { params: SessionCreateParams; data: SessionCreateData; item: never; kind: "write" };
  "session.list": { params: SessionListParams; data: SessionListData; item: never; kind: "read" };
  "session.search": { params: SessionSearchParams; data: SessionSearchData; item: never; kind: "read" };
  "session.get": { params: SessionGetParams; data: SessionGetData; item: never; kind: "read" };
  "session.ask": { params: SessionAskParams; data: SessionAskData; item: never; kind: "write" };
  "session.resume": { params: SessionResumeParams; data: SessionResumeData; item: never; kind: "read" };
  "session.stop": { params: SessionStopParams; data: SessionStopData; item: never; kind: "write" };
  "session.delete": { params: SessionDeleteParams; data: SessionDeleteData; item: never; kind: "destructive" };
  "events.read": { params: EventsReadParams; data: EventsReadData; item: never; kind: "read" };
  "events.verify": { params: EventsVerifyParams; data: EventsVerifyData; item: never; kind: "read" };
  "events.subscribe": { params: EventsSubscribeParams; data: EventsSubscribeData; item: EventsSubscribeItem; kind: "read" };
}

/** Facts about each method, for the client. */
export const METHODS: { readonly [Name in keyof Methods]: {
  readonly kind: "read" | "write" | "destructive";
  readonly streams: boolean;
  readonly answer: boolean;
} } = {
  "ping": { kind: "read", streams: false, answer: false },
  "version": { kind: "read", streams: false, answer: false },
  "describe": { kind: "read", streams: false, answer: false },
  "schema": { kind: "read", streams: false, answer: false },
  "status": { kind: "read", streams: false, answer: false },
  "store.backup": { kind: "write", streams: true, answer: false },
  "store.export": { kind: "read", streams: true, answer: false },
  "store.import": { kind: "write", streams: true, answer: false },
  "store.compact": { kind: "destructive", streams: true, answer: false },
  "store.purge": { kind: "destructive", streams: true, answer: false },
  "doctor": { kind: "read", streams: true, answer: false },
  "index.rebuild": { kind: "write", streams: true, answer: false },
  "store.move": { kind: "write", streams: true, answer: false },
  "cluster.init": { kind: "write", streams: true, answer: false },
  "cluster.join": { kind: "write", streams: true, answer: false },
  "cluster.leave": { kind: "write", streams: true, answer: false },
  "cluster.reseed": { kind: "destructive", streams: true, answer: false },
  "cluster.status": { kind: "read", streams: false, answer: false },
  "model.install": { kind: "write", streams: true, answer: false },
  "model.list": { kind: "read", streams: false, answer: false },
  "model.use": { kind: "write", streams: true, answer: false },
  "sql.query": { kind: "read", streams: false, answer: false },
  "kb.create": { kind: "write", streams: false, answer: false },
  "kb.list": { kind: "read", streams: false, answer: false },
  "kb.get": { kind: "read", streams: false, answer: false },
  "kb.update": { kind: "write", streams: false, answer: false },
  "kb.delete": { kind: "destructive", streams: false, answer: false },
  "kb.status": { kind: "read", streams: false, answer: false },
  "kb.check": { kind: "read", streams: false, answer: false },
  "doc.ingest": { kind: "write", streams: true, answer: false },
  "chats.add": { kind: "write", streams: true, answer: false },
  "chats.export": { kind: "read", streams: false, answer: false },
  "doc.create": { kind: "write", streams: false, answer: false },
  "doc.fetch": { kind: "write", streams: true, answer: false },
  "doc.reparse": { kind: "write", streams: true, answer: false },
  "doc.list": { kind: "read", streams: false, answer: false },
  "doc.get": { kind: "read", streams: false, answer: false },
  "doc.update": { kind: "write", streams: false, answer: false },
  "doc.delete": { kind: "destructive", streams: false, answer: false },
  "doc.download": { kind: "read", streams: false, answer: false },
  "doc.wait": { kind: "read", streams: true, answer: false },
  "doc.history": { kind: "read", streams: false, answer: false },
  "doc.restore": { kind: "write", streams: false, answer: false },
  "events.revert": { kind: "destructive", streams: false, answer: false },
  "plan.list": { kind: "read", streams: false, answer: false },
  "plan.approve": { kind: "write", streams: false, answer: false },
  "plan.refuse": { kind: "write", streams: false, answer: false },
  "watch.add": { kind: "write", streams: false, answer: false },
  "watch.list": { kind: "read", streams: false, answer: false },
  "watch.remove": { kind: "write", streams: false, answer: false },
  "chunk.list": { kind: "read", streams: false, answer: false },
  "chunk.get": { kind: "read", streams: false, answer: false },
  "chunk.map": { kind: "read", streams: false, answer: false },
  "chunk.delete": { kind: "destructive", streams: false, answer: false },
  "tag.list": { kind: "read", streams: false, answer: false },
  "search": { kind: "read", streams: false, answer: false },
  "knowledge.store": { kind: "write", streams: false, answer: false },
  "knowledge.search": { kind: "read", streams: false, answer: false },
  "knowledge.get": { kind: "read", streams: false, answer: false },
  "knowledge.list": { kind: "read", streams: false, answer: false },
  "knowledge.supersede": { kind: "write", streams: false, answer: false },
  "knowledge.unsupersede": { kind: "write", streams: false, answer: false },
  "knowledge.verify": { kind: "write", streams: false, answer: false },
  "knowledge.duplicates": { kind: "read", streams: false, answer: false },
  "knowledge.delete": { kind: "destructive", streams: false, answer: false },
  "review.list": { kind: "read", streams: false, answer: false },
  "review.approve": { kind: "write", streams: false, answer: false },
  "review.edit": { kind: "write", streams: false, answer: false },
  "review.reject": { kind: "write", streams: false, answer: false },
  "note.search": { kind: "read", streams: false, answer: false },
  "note.get": { kind: "read", streams: false, answer: false },
  "note.list": { kind: "read", streams: false, answer: false },
  "note.put": { kind: "write", streams: false, answer: false },
  "note.delete": { kind: "destructive", streams: false, answer: false },
  "note.sync": { kind: "write", streams: true, answer: false },
  "note.history": { kind: "read", streams: false, answer: false },
  "agent.create": { kind: "write", streams: false, answer: false },
  "agent.list": { kind: "read", streams: false, answer: false },
  "agent.get": { kind: "read", streams: false, answer: false },
  "agent.update": { kind: "write", streams: false, answer: false },
  "agent.delete": { kind: "destructive", streams: false, answer: false },
  "agent.status": { kind: "read", streams: false, answer: false },
  "agent.check": { kind: "read", streams: false, answer: false },
  "agent.invoke": { kind: "write", streams: true, answer: true },
  "chat": { kind: "write", streams: true, answer: true },
  "session.create": { kind: "write", streams: false, answer: false },
  "session.list": { kind: "read", streams: false, answer: false },
  "session.search": { kind: "read", streams: false, answer: false },
  "session.get": { kind: "read", streams: false, answer: false },
  "session.ask": { kind: "write", streams: true, answer: true },
  "session.resume": { kind: "read", streams: true, answer: true },
  "session.stop": { kind: "write", streams: false, answer: false },
  "session.delete": { kind: "destructive", streams: false, answer: false },
  "events.read": { kind: "read", streams: false, answer: false },
  "events.verify": { kind: "read", streams: false, answer: false },
  "events.subscribe": { kind: "read", streams: true, answer: false },
};

/** Every method under its name. */
export interface Api {
  /** Answer with the log position. */
  ping: Ask<"ping">;
  /** List the versions of kbproc, protocol, Python and libraries. */
  version: Ask<"version">;
  /** Describe the whole surface, or one method. */
  describe: Ask<"describe">;
  /** Return one JSON Schema by name, or list the names. */
  schema: Ask<"schema">;
  /** Count what the store holds; cheap. */
  status: Ask<"status">;
  /** Check libraries, store, log, views, model, disk and permissions. */
  doctor: Ask<"doctor">;
  /** Search by words and by meaning. */
  search: Ask<"search">;
  /** Ask a question in a new conversation; the answer is a stream. */
  chat: Ask<"chat">;
  store: {
    /** Copy the whole store to a new folder. */
    backup: Ask<"store.backup">;
    /** Write all that the store holds as portable NDJSON. */
    export: Ask<"store.export">;
    /** Bring in what store.export has written. */
    import: Ask<"store.import">;
    /** Forget what documents held before a moment. */
    compact: Ask<"store.compact">;
    /** Erase documents, entries, notes and sessions for good. */
    purge: Ask<"store.purge">;
    /** Move the store's log to NATS servers, or back. */
    move: Ask<"store.move">;
  };
  index: {
    /** Rebuild every view from the log and swap it in. */
    rebuild: Ask<"index.rebuild">;
  };
  cluster: {
    /** Share the store's log with other nodes. */
    init: Ask<"cluster.init">;
    /** Follow the log that other nodes share. */
    join: Ask<"cluster.join">;
    /** Keep the log alone again. */
    leave: Ask<"cluster.leave">;
    /** Refill a damaged stream from this node's log. */
    reseed: Ask<"cluster.reseed">;
    /** Tell how far this node is. */
    status: Ask<"cluster.status">;
  };
  model: {
    /** Download an embedding model, or a cross-encoder. */
    install: Ask<"model.install">;
    /** List the embedding models that can be used here, and some of the hub to choose from. */
    list: Ask<"model.list">;
    /** Switch to another embedding model. */
    use: Ask<"model.use">;
  };
  sql: {
    /** Run one read-only SELECT over the catalog's views. */
    query: Ask<"sql.query">;
  };
  kb: {
    /** Create a knowledge base. */
    create: Ask<"kb.create">;
    /** List the knowledge bases by slug. */
    list: Ask<"kb.list">;
    /** Show one knowledge base. */
    get: Ask<"kb.get">;
    /** Change a knowledge base's name, description or review. */
    update: Ask<"kb.update">;
    /** Delete a knowledge base and hide all of its documents. */
    delete: Ask<"kb.delete">;
    /** Count a knowledge base's documents and chunks; cheap. */
    status: Ask<"kb.status">;
    /** Look for failed, changed, missing and partly read files. */
    check: Ask<"kb.check">;
  };
  doc: {
    /** Read files and folders into a knowledge base. */
    ingest: Ask<"doc.ingest">;
    /** Add a text as a document, or many at once. */
    create: Ask<"doc.create">;
    /** Add the web page or file at a URL. */
    fetch: Ask<"doc.fetch">;
    /** Cut documents into chunks afresh from their stored bytes. */
    reparse: Ask<"doc.reparse">;
    /** List documents by id, filtered. */
    list: Ask<"doc.list">;
    /** Show one document, with its text on request. */
    get: Ask<"doc.get">;
    /** Change a document's title, tags, metadata or text. */
    update: Ask<"doc.update">;
    /** Hide documents from every read; the log keeps their text. */
    delete: Ask<"doc.delete">;
    /** Return the stored source bytes, in parts, as base64. */
    download: Ask<"doc.download">;
    /** Wait until documents are embedded. */
    wait: Ask<"doc.wait">;
    /** List what happened to a document, newest first. */
    history: Ask<"doc.history">;
    /** Restore deleted documents, or an earlier revision of one. */
    restore: Ask<"doc.restore">;
  };
  chats: {
    /** Read session logs of coding agents. */
    add: Ask<"chats.add">;
    /** Write conversations as JSON Lines. */
    export: Ask<"chats.export">;
  };
  events: {
    /** Undo records of the log, or all that an actor did since a time. */
    revert: Ask<"events.revert">;
    /** List what was written, record by record, in order. */
    read: Ask<"events.read">;
    /** Check each record's hash and its link to the one before. */
    verify: Ask<"events.verify">;
    /** Stream each record of the log from a position on. */
    subscribe: Ask<"events.subscribe">;
  };
  plan: {
    /** List plans that wait for a person. */
    list: Ask<"plan.list">;
    /** Approve a plan that waits. */
    approve: Ask<"plan.approve">;
    /** Refuse a plan that waits. */
    refuse: Ask<"plan.refuse">;
  };
  watch: {
    /** Keep documents in step with a folder. */
    add: Ask<"watch.add">;
    /** List the watched folders. */
    list: Ask<"watch.list">;
    /** End watching a folder. */
    remove: Ask<"watch.remove">;
  };
  chunk: {
    /** List a document's chunks in order. */
    list: Ask<"chunk.list">;
    /** Show one chunk, with as many neighbours as asked for. */
    get: Ask<"chunk.get">;
    /** Place chunks in a plane by their meaning. */
    map: Ask<"chunk.map">;
    /** Hide chunks from search. */
    delete: Ask<"chunk.delete">;
  };
  tag: {
    /** List the tags in use and how many documents carry each. */
    list: Ask<"tag.list">;
  };
  knowledge: {
    /** Store what was learned, as a knowledge entry. */
    store: Ask<"knowledge.store">;
    /** Search the knowledge entries by words and by meaning. */
    search: Ask<"knowledge.search">;
    /** Show one knowledge entry with its text. */
    get: Ask<"knowledge.get">;
    /** List knowledge entries by id, filtered. */
    list: Ask<"knowledge.list">;
    /** Let one entry take the place of another. */
    supersede: Ask<"knowledge.supersede">;
    /** Undo that one entry took the place of another. */
    unsupersede: Ask<"knowledge.unsupersede">;
    /** Note that a person found entries to hold. */
    verify: Ask<"knowledge.verify">;
    /** Group entries that say nearly the same. */
    duplicates: Ask<"knowledge.duplicates">;
    /** Hide knowledge entries from reads; the log keeps their text. */
    delete: Ask<"knowledge.delete">;
  };
  review: {
    /** List the entries that wait for an approval. */
    list: Ask<"review.list">;
    /** Approve entries in review: searches find them then. */
    approve: Ask<"review.approve">;
    /** Change an entry in review, which stays there. */
    edit: Ask<"review.edit">;
    /** Reject entries in review; the log keeps their text. */
    reject: Ask<"review.reject">;
  };
  note: {
    /** Search an agent's notes, one hit a note. */
    search: Ask<"note.search">;
    /** Show one note with its whole text. */
    get: Ask<"note.get">;
    /** List an agent's notes by slug. */
    list: Ask<"note.list">;
    /** Create a note or replace it, and write its file. */
    put: Ask<"note.put">;
    /** Hide a note and remove its file; the log keeps its text. */
    delete: Ask<"note.delete">;
    /** Record what people did to the files of notes. */
    sync: Ask<"note.sync">;
    /** List what happened to a note, newest first. */
    history: Ask<"note.history">;
  };
  agent: {
    /** Create an agent: what it sees, may do and may keep. */
    create: Ask<"agent.create">;
    /** List the agents by slug. */
    list: Ask<"agent.list">;
    /** Show one agent. */
    get: Ask<"agent.get">;
    /** Change what an agent sees, may do or keep, or its folder. */
    update: Ask<"agent.update">;
    /** Delete an agent and hide its notes; files stay. */
    delete: Ask<"agent.delete">;
    /** Count an agent's notes and entries against its quotas. */
    status: Ask<"agent.status">;
    /** Check an agent's notes folder, scopes, knowledge bases and quotas. */
    check: Ask<"agent.check">;
    /** Ask a question of an agent; the answer comes as a stream. */
    invoke: Ask<"agent.invoke">;
  };
  session: {
    /** Begin a conversation. */
    create: Ask<"session.create">;
    /** List the conversations by id. */
    list: Ask<"session.list">;
    /** Search questions and answers. */
    search: Ask<"session.search">;
    /** Show one conversation with its last messages. */
    get: Ask<"session.get">;
    /** Ask in a conversation; the answer is a stream. */
    ask: Ask<"session.ask">;
    /** Read an answer on from where its stream was lost. */
    resume: Ask<"session.resume">;
    /** End an answer that is being made, for all its readers. */
    stop: Ask<"session.stop">;
    /** Hide conversations from reads; the log keeps their text. */
    delete: Ask<"session.delete">;
  };
}
